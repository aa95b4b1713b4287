"""Rows of kernels.py on images whose time is memory: depthwise convolutions, squeeze-and-excite and pooling, and what
other rows on images share. Images are channels last at both ends. Bars as in product_rows.py.

At batch 1 all sets together stay in the cache, as between the layers of a network; of larger batches there are more
than it holds.

A window's kernel reads and writes channels last inside a network, where neighbours want them so; alone, with a
transposed result, it is followed by a kernel that only moves. So such a row's model gives a small part of each result
away (`probe`), all parts added up by one small kernel, which is part of the time. Peers are not asked for that.
"""

import numpy as np
import torch
import torch.nn.functional as F
from onnx import helper

from product_rows import size_of
from rows import FOOTPRINT, MOST_SETS, Candidate, Row, Spec

BATCHES = (64, 8, 1)


def node(op, inputs, output, **attributes):
    return helper.make_node(op, inputs, [output], **attributes)


def to_nchw(v, y):
    return node("Transpose", [v["x"]], y + "t", perm=[0, 3, 1, 2])


def to_nhwc(name, y):
    return node("Transpose", [name], y, perm=[0, 2, 3, 1])


ACTIVATIONS = {
    "relu6": (F.relu6, lambda x, y: [node("Clip", [x, "zero", "six"], y)]),
    "hardswish": (F.hardswish, lambda x, y: [node("HardSwish", [x], y)]),
    "silu": (F.silu, lambda x, y: [node("Sigmoid", [x], y + "g"), node("Mul", [x, y + "g"], y)]),
    "": (lambda x: x, lambda x, y: [node("Identity", [x], y)]),
}


def scalars(kind):
    """Bounds of Clip; bf16 has no NumPy type, and no rows with them."""
    dtype = np.float16 if kind == "fp16" else np.float32
    return {"zero": dtype(0), "six": dtype(6)}


def image_views(values):
    """The peer's form: views in the order N, C, H, W of the same memory, and a copy in that order as `planes`."""
    views = {n: t.permute(0, 3, 1, 2) if t.dim() == 4 and n in ("x", "r") else t for n, t in values.items()}
    return dict(views, planes=views["x"].contiguous())


def images(call):
    """A call on images in the order N, C, H, W as peers in both memory orders, and as the reference."""
    peers = [Candidate("PyTorch", call), Candidate("PyTorch NCHW", lambda v: call(dict(v, x=v["planes"])))]
    return peers, lambda v: call(dict(v, x=v["x"].permute(0, 3, 1, 2))).permute(0, 2, 3, 1)


MOST_PROBED = 16


def sets_at(batch, moved):
    """Row.sets: at batch 1 what stays in the cache together, else 0."""
    return max(1, min(MOST_SETS, int(25e6 // moved))) if batch == 1 else 0


def probed_sets(batch, moved):
    """So many that the kernel behind all of them counts little, and no more than one kernel reads."""
    return min(MOST_PROBED, sets_at(batch, moved) or max(8, 1 + int(FOOTPRINT // moved)))


PROBE = {"first": np.array([-1, 0]), "end": np.array([1 << 30, 1 << 30]), "axes": np.array([0, 2])}


def probe(name, y):
    """Nodes for the first and the last line of the last image of `name`, an image in the order N, C, H, W: edges on
    all sides."""
    return [node("Slice", [name, "first", "end", "axes", "steps"], y + "l"), to_nhwc(y + "l", y)]


def steps(height):
    return {"steps": np.array([1, height - 1])}


def part(image, height):
    return image[-1:, :: height - 1]


def bytes_of(kind, *shapes):
    return size_of(kind) * sum(int(np.prod(s)) for s in shapes)


# ---- depthwise -------------------------------------------------------------------------------------------------------

# name: image size, channels, filter, stride, activation; at batch 64, 8, 1: hand-made, and with sums of f32 only
DEPTHWISE = {
    "mb112x32": (112, 32, 3, 1, "relu6", (27.80, 29.87), (5.44, 6.10), (1.92, 1.92)),
    "mb112x96s2": (112, 96, 3, 2, "relu6", (49.12, 49.12), (8.15, 8.15), (2.19, 2.19)),
    "mb56x144": (56, 144, 3, 1, "relu6", (31.54, 34.30), (6.05, 6.59), (2.15, 2.15)),
    "mb28x192": (28, 192, 3, 1, "relu6", (12.18, 12.92), (3.55, 3.55), (1.62, 1.62)),
    "mb14x384": (14, 384, 3, 1, "hardswish", (7.09, 7.56), (2.75, 2.75), (1.50, 1.50)),
    "mb14x576s2": (14, 576, 3, 2, "relu6", (7.34, 7.34), (2.60, 2.60), (1.48, 1.48)),
    "mb7x960": (7, 960, 3, 1, "relu6", (5.38, 5.96), (2.28, 2.28), (1.48, 1.48)),
    "ef56x144k5s2": (56, 144, 5, 2, "silu", (25.83, 30.13), (6.20, 6.52), (2.14, 2.14)),
    "ef28x240k5": (28, 240, 5, 1, "silu", (22.29, 27.83), (5.55, 6.32), (2.14, 2.20)),
    "ef14x672k5": (14, 672, 5, 1, "silu", (17.29, 22.92), (5.24, 5.67), (2.08, 2.10)),
    "ef14x672k5s2": (14, 672, 5, 2, "silu", (10.13, 10.13), (3.59, 3.77), (1.81, 1.81)),
    "ef7x1152k5": (7, 1152, 5, 1, "silu", (10.87, 10.87), (3.38, 3.70), (1.78, 1.78)),
    "cn56x96k7": (56, 96, 7, 1, "", (39.25, 65.18), (8.26, 11.60), (2.96, 3.69)),
    "cn28x192k7": (28, 192, 7, 1, "", (21.18, 29.72), (5.94, 7.60), (2.39, 2.81)),
    "cn14x384k7": (14, 384, 7, 1, "", (14.16, 20.49), (4.28, 5.07), (2.09, 2.16)),
    "cn7x768k7": (7, 768, 7, 1, "", (7.18, 10.18), (3.09, 3.71), (2.02, 2.08)),
}


def depthwise_conv(v, y, c, filt, stride):
    return node(
        "Conv",
        [y + "t", v["w"], v["b"]],
        y + "c",
        group=c,
        kernel_shape=[filt, filt],
        strides=[stride, stride],
        pads=[filt // 2] * 4,
    )


def depthwise_row(kind, name, batch, layer, bars):
    size, c, filt, stride, act = layer
    out = (size - 1) // stride + 1
    function, act_nodes = ACTIVATIONS[act]
    moved = size_of(kind) * batch * c * (size * size + out * out)
    nodes = lambda v, r: [
        to_nchw(v, r[0]),
        depthwise_conv(v, r[0], c, filt, stride),
        *act_nodes(r[0] + "c", r[0] + "a"),
        *probe(r[0] + "a", r[0]),
    ]
    conv = lambda v: F.conv2d(v["x"], v["w"], v["b"], stride, filt // 2, groups=c)
    peers, reference = images(lambda v: function(conv(v)))
    return Row(
        "depthwise",
        f"depthwise b{batch} {name}",
        kind,
        2 * batch * out * out * c * filt * filt,
        moved,
        {"x": Spec((batch, size, size, c))},
        {"w": Spec((c, 1, filt, filt), 1 / filt), "b": Spec((c,), 0.1)},
        nodes,
        peers + [Candidate("convolution alone", conv, counts=False)],
        lambda v: part(reference(v), out),
        summed=True,
        constants=scalars(kind) | PROBE | steps(out),
        prepare=image_views,
        sets=probed_sets(batch, moved),
        bars={"hand-made": bars[0], "hand-made, sums of f32": bars[1]},
    )


def depthwise_rows(kind):
    for at, batch in enumerate(BATCHES):
        for name, (*layer, b64, b8, b1) in DEPTHWISE.items():
            yield depthwise_row(kind, name, batch, layer, (b64, b8, b1)[at])


# ---- squeeze-and-excite ----------------------------------------------------------------------------------------------

# A block of EfficientNet: image size, channels, filter, stride, squeezed channels; the hand-made chain at batch 1
EXCITE = [
    (112, 32, 3, 1, 8, 4.61),
    (112, 96, 3, 2, 4, 4.26),
    (56, 144, 3, 1, 6, 4.81),
    (56, 144, 5, 2, 6, 4.12),
    (28, 240, 5, 1, 10, 4.26),
    (28, 240, 3, 2, 10, 3.33),
    (14, 480, 3, 1, 20, 3.54),
    (14, 480, 5, 1, 20, 3.94),
    (14, 672, 5, 1, 28, 4.15),
    (14, 672, 5, 2, 28, 3.76),
    (7, 1152, 5, 1, 48, 4.37),
    (7, 1152, 3, 1, 48, 4.18),
]


def excite_nodes(c, filt, stride):
    silu = ACTIVATIONS["silu"][1]

    def nodes(v, results):
        y = results[0]
        return [
            to_nchw(v, y),
            depthwise_conv(v, y, c, filt, stride),
            *silu(y + "c", y + "a"),
            node("GlobalAveragePool", [y + "a"], y + "p"),
            node("Conv", [y + "p", v["down"], v["d"]], y + "q"),
            *silu(y + "q", y + "r"),
            node("Conv", [y + "r", v["up"], v["u"]], y + "f"),
            node("Sigmoid", [y + "f"], y + "s"),
            node("Mul", [y + "a", y + "s"], y + "m"),
            to_nhwc(y + "m", y),
        ]

    return nodes


def excite_row(kind, batch, size, c, filt, stride, squeezed, bar):
    out = (size - 1) // stride + 1

    def call(v):
        a = F.silu(F.conv2d(v["x"], v["w"], v["b"], stride, filt // 2, groups=c))
        gate = F.conv2d(F.silu(F.conv2d(a.mean((2, 3), keepdim=True), v["down"], v["d"])), v["up"], v["u"])
        return a * torch.sigmoid(gate)

    peers, reference = images(call)
    weights = {
        "w": Spec((c, 1, filt, filt), 1 / filt),
        "b": Spec((c,), 0.1),
        "down": Spec((squeezed, c, 1, 1), c**-0.5),
        "d": Spec((squeezed,)),
        "up": Spec((c, squeezed, 1, 1), squeezed**-0.5),
        "u": Spec((c,)),
    }
    moved = size_of(kind) * batch * c * (size * size + out * out)
    return Row(
        "excite",
        f"excite b{batch} {size}x{size} c{c} f{filt} s{stride}",
        kind,
        2 * batch * out * out * c * filt * filt,
        moved,
        {"x": Spec((batch, size, size, c))},
        weights,
        excite_nodes(c, filt, stride),
        peers,
        reference,
        prepare=image_views,
        sets=sets_at(batch, moved),
        bars={"hand-made chain": bar} if batch == 1 else {},
    )


def excite_rows(kind):
    for batch in (1, 64):
        for layer in EXCITE:
            yield excite_row(kind, batch, *layer)


# ---- pooling ----------------------------------------------------------------------------------------------------


def pool_row(kind, name, dims, op, window, function, bar):
    size, stride, pad = window
    out = (dims[1] + 2 * pad - size) // stride + 1
    moved = bytes_of(kind, dims, (dims[0], out, out, dims[3]))
    attributes = dict(kernel_shape=[size, size], strides=[stride, stride], pads=[pad] * 4) | (
        dict(count_include_pad=1) if op == "AveragePool" else {}
    )
    nodes = lambda v, r: [to_nchw(v, r[0]), node(op, [r[0] + "t"], r[0] + "p", **attributes), *probe(r[0] + "p", r[0])]
    peers, reference = images(lambda v: function(v["x"], *window))
    return Row(
        "pool",
        f"{name} b{dims[0]} {dims[1]}x{dims[2]}x{dims[3]}",
        kind,
        0,
        moved,
        {"x": Spec(dims)},
        {},
        nodes,
        peers,
        lambda v: part(reference(v), out),
        summed=True,
        constants=PROBE | steps(out),
        prepare=image_views,
        sets=probed_sets(dims[0], moved),
        bars={"hand-made": bar},
    )


def average_row(kind, batch, channels, bar):
    """The mean of an image's pixels."""
    dims = (batch, 7, 7, channels)
    call = lambda v: v["x"].mean((2, 3))
    return Row(
        "pool",
        f"global average b{batch} 7x7x{channels}",
        kind,
        0,
        bytes_of(kind, dims, (batch, channels)),
        {"x": Spec(dims)},
        {},
        lambda v, r: [node("ReduceMean", [v["x"], "axes"], r[0], keepdims=0)],
        [Candidate("PyTorch", call), Candidate("PyTorch NCHW", lambda v: call({"x": v["planes"]}))],
        lambda v: v["x"].mean((1, 2)),
        constants={"axes": np.array([1, 2])},
        prepare=image_views,
        sets=sets_at(batch, bytes_of(kind, dims)),
        bars={"hand-made": bar},
    )


def pool_rows(kind):
    yield pool_row(kind, "maxpool 3x3 s2", (64, 112, 112, 64), "MaxPool", (3, 2, 1), F.max_pool2d, 31.6)
    yield pool_row(kind, "maxpool 2x2 s2", (64, 112, 112, 128), "MaxPool", (2, 2, 0), F.max_pool2d, 60.0)
    yield pool_row(kind, "avgpool 3x3 s1", (64, 35, 35, 256), "AveragePool", (3, 1, 1), F.avg_pool2d, 21.9)
    for batch, channels, bar in ((64, 1280, 5.1), (64, 2048, 6.0), (1, 1280, 1.57), (1, 2048, 1.56)):
        yield average_row(kind, batch, channels, bar)


SECTIONS = {"depthwise": depthwise_rows, "excite": excite_rows, "pool": pool_rows}
