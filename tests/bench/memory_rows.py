"""Rows of kernels.py whose time is memory, beside those on images: norms and softmax, transposes and resizing,
pointwise trees. Bars as in product_rows.py.
"""

import numpy as np
import torch.nn.functional as F

from image_rows import ACTIVATIONS, bytes_of, image_views, images, node, to_nchw, to_nhwc
from product_rows import size_of
from rows import Candidate, Row, Spec

# ---- rows: norms and softmax -----------------------------------------------------------------------------------------

# rows, columns; hand-made: LayerNorm, LayerNorm of a sum, RMSNorm, softmax
NORMS = [
    (8192, 768, 8.18, 14.37, 8.39, 7.83),
    (12608, 768, 11.34, 20.68, 11.69, 11.18),
    (65536, 1024, 67.3, 133.1, 67.0, 66.2),
    (16384, 4096, 68.0, None, 67.3, 66.6),
    (4096, 32000, 151.2, None, None, 145.6),
    (200000, 64, 14.1, None, None, 14.2),
    (128, 768, 1.53, 1.70, 1.57, 1.68),
    (197, 768, 1.69, None, None, 1.70),
]
GROUPS = [
    (2, 64, 320, 10.5),
    (8, 64, 320, 24.6),
    (8, 32, 640, 11.6),
    (8, 16, 1280, 8.3),
    (8, 64, 512, 29.7),
    (4, 128, 256, 40.5),
]


def norm_row(kind, what, rows, columns, bar):
    inputs, weights, tensors = {"x": Spec((rows, columns))}, {"w": Spec((columns,)), "b": Spec((columns,))}, 2
    norm = lambda x, v: F.layer_norm(x, (columns,), v["w"], v["b"])
    if what == "layernorm":
        nodes = lambda v, r: [node("LayerNormalization", [v["x"], v["w"], v["b"]], r[0], axis=-1)]
        call = lambda v: norm(v["x"], v)
    elif what == "add layernorm":
        inputs["r"], tensors = Spec((rows, columns)), 4
        nodes = lambda v, r: [
            node("Add", [v["x"], v["r"]], r[1]),
            node("LayerNormalization", [r[1], v["w"], v["b"]], r[0], axis=-1),
        ]

        def call(v):
            total = v["x"] + v["r"]
            return norm(total, v), total
    elif what == "rmsnorm":
        del weights["b"]
        nodes = lambda v, r: [node("RMSNormalization", [v["x"], v["w"]], r[0], axis=-1, epsilon=1e-5)]
        call = lambda v: F.rms_norm(v["x"], (columns,), v["w"], 1e-5)
    else:
        weights = {}
        nodes = lambda v, r: [node("Softmax", [v["x"]], r[0], axis=-1)]
        call = lambda v: F.softmax(v["x"], -1)
    return Row(
        "norm",
        f"{what} {rows}x{columns}",
        kind,
        0,
        size_of(kind) * tensors * rows * columns,
        inputs,
        weights,
        nodes,
        [Candidate("PyTorch", call)],
        call,
        outputs=2 if tensors == 4 else 1,
        sets=1 if rows < 256 else 0,
        bars={"hand-made": bar},
    )


def group_row(kind, n, size, c, bar):
    silu = ACTIVATIONS["silu"][1]
    nodes = lambda v, r: [
        to_nchw(v, r[0]),
        node("GroupNormalization", [r[0] + "t", v["w"], v["b"]], r[0] + "n", num_groups=32, epsilon=1e-5),
        *silu(r[0] + "n", r[0] + "a"),
        to_nhwc(r[0] + "a", r[0]),
    ]
    peers, reference = images(lambda v: F.silu(F.group_norm(v["x"], 32, v["w"], v["b"])))
    return Row(
        "norm",
        f"groupnorm32 silu {n}x{size}x{size}x{c}",
        kind,
        0,
        size_of(kind) * 2 * n * size * size * c,
        {"x": Spec((n, size, size, c))},
        {"w": Spec((c,)), "b": Spec((c,))},
        nodes,
        peers,
        reference,
        prepare=image_views,
        bars={"hand-made": bar},
    )


def norm_rows(kind):
    for rows, columns, *bars in NORMS:
        for what, bar in zip(("layernorm", "add layernorm", "rmsnorm", "softmax"), bars):
            yield norm_row(kind, what, rows, columns, bar)
    for shape in GROUPS:
        yield group_row(kind, *shape)


# ---- movement, pointwise ------------------------------------------------------------------------------------

# name, dims, order of axes, hand-made
TRANSPOSES = [
    ("NCHW3 to NHWC3", (64, 3, 224, 224), (0, 2, 3, 1), 11.2),
    ("64x[64,3136]", (64, 64, 3136), (0, 2, 1), 14.4),
    ("64x[256,3136]", (64, 256, 3136), (0, 2, 1), 51.3),
    ("64x[512,784]", (64, 512, 784), (0, 2, 1), 27.3),
    ("64x[1024,196]", (64, 1024, 196), (0, 2, 1), 15.3),
    ("8192x8192", (8192, 8192), (1, 0), 73.1),
    ("768x[197,64]", (768, 197, 64), (0, 2, 1), 15.8),
    ("0213 [16,512,12,64]", (16, 512, 12, 64), (0, 2, 1, 3), 8.3),
    ("0213 [8,2048,16,64]", (8, 2048, 16, 64), (0, 2, 1, 3), 18.6),
]


def transpose_row(kind, name, dims, order, bar):
    call = lambda v: v["x"].permute(order).contiguous()
    return Row(
        "movement",
        f"transpose {name}",
        kind,
        0,
        bytes_of(kind, dims, dims),
        {"x": Spec(dims)},
        {},
        lambda v, r: [node("Transpose", [v["x"]], r[0], perm=list(order))],
        [Candidate("PyTorch", call)],
        call,
        exact=True,
        bars={"hand-made": bar},
    )


def padded_row(kind):
    """Images of three channels to channels last with a fourth of zeros."""
    call = lambda v: F.pad(v["x"].permute(0, 2, 3, 1), (0, 1)).contiguous()
    nodes = lambda v, r: [
        node("Transpose", [v["x"]], r[0] + "t", perm=[0, 2, 3, 1]),
        node("Pad", [r[0] + "t", "pads"], r[0]),
    ]
    return Row(
        "movement",
        "transpose NCHW3 to NHWC4",
        kind,
        0,
        bytes_of(kind, (64, 7, 224, 224)),
        {"x": Spec((64, 3, 224, 224))},
        {},
        nodes,
        [Candidate("PyTorch", call)],
        call,
        exact=True,
        constants={"pads": np.array([0, 0, 0, 0, 0, 0, 0, 1])},
        bars={"hand-made": 13.2},
    )


def resize_row(kind, mode, bar):
    place = (
        dict(coordinate_transformation_mode="asymmetric", nearest_mode="floor")
        if mode == "nearest"
        else dict(coordinate_transformation_mode="half_pixel")
    )
    nodes = lambda v, r: [
        to_nchw(v, r[0]),
        node(
            "Resize", [r[0] + "t", "", "scales"], r[0] + "z", mode="nearest" if mode == "nearest" else "linear", **place
        ),
        to_nhwc(r[0] + "z", r[0]),
    ]
    peers, reference = images(lambda v: F.interpolate(v["x"], scale_factor=2, mode=mode))
    return Row(
        "movement",
        f"resize {mode} 2x b8 56x56x256",
        kind,
        0,
        bytes_of(kind, (8, 56, 56, 256), (8, 112, 112, 256)),
        {"x": Spec((8, 56, 56, 256))},
        {},
        nodes,
        peers,
        reference,
        exact=mode == "nearest",
        constants={"scales": np.array([1, 1, 2, 2], np.float32)},
        prepare=image_views,
        bars={"hand-made": bar},
    )


def movement_rows(kind):
    for row in TRANSPOSES:
        yield transpose_row(kind, *row)
    yield padded_row(kind)
    yield resize_row(kind, "nearest", 17.5)
    yield resize_row(kind, "bilinear", 17.9)


def pointwise_rows(kind):
    dims = (65536, 1024)
    silu = ACTIVATIONS["silu"][1]
    full, row, channel = Spec(dims), Spec((dims[0], 1)), Spec((dims[1],))
    # name, inputs, weights, nodes, call, hand-made
    trees = [
        ("relu", {"x": full}, {}, lambda v, y: [node("Relu", [v["x"]], y)], lambda v: F.relu(v["x"]), 65.3),
        ("gelu", {"x": full}, {}, lambda v, y: [node("Gelu", [v["x"]], y)], lambda v: F.gelu(v["x"]), 65.0),
        (
            "a + b",
            {"x": full, "r": full},
            {},
            lambda v, y: [node("Add", [v["x"], v["r"]], y)],
            lambda v: v["x"] + v["r"],
            94.0,
        ),
        (
            "relu(a + b + channel)",
            {"x": full, "r": full},
            {"w": channel},
            lambda v, y: [
                node("Add", [v["x"], v["r"]], y + "s"),
                node("Add", [y + "s", v["w"]], y + "t"),
                node("Relu", [y + "t"], y),
            ],
            lambda v: F.relu(v["x"] + v["r"] + v["w"]),
            94.1,
        ),
        (
            "silu(a * b + c) * d",
            {"x": full, "r": full, "c": full, "d": full},
            {},
            lambda v, y: [
                node("Mul", [v["x"], v["r"]], y + "p"),
                node("Add", [y + "p", v["c"]], y + "s"),
                *silu(y + "s", y + "a"),
                node("Mul", [y + "a", v["d"]], y),
            ],
            lambda v: F.silu(v["x"] * v["r"] + v["c"]) * v["d"],
            153.9,
        ),
        (
            "a * channel",
            {"x": full},
            {"w": channel},
            lambda v, y: [node("Mul", [v["x"], v["w"]], y)],
            lambda v: v["x"] * v["w"],
            64.8,
        ),
        (
            "a * row",
            {"x": full, "r": row},
            {},
            lambda v, y: [node("Mul", [v["x"], v["r"]], y)],
            lambda v: v["x"] * v["r"],
            65.3,
        ),
    ]
    for name, inputs, weights, nodes, call, bar in trees:
        moved = bytes_of(kind, dims, *[s.shape for s in (inputs | weights).values()])
        yield Row(
            "pointwise",
            f"pointwise {name}",
            kind,
            0,
            moved,
            inputs,
            weights,
            lambda v, r, n=nodes: n(v, r[0]),
            [Candidate("PyTorch", call)],
            call,
            bars={"hand-made": bar},
        )


SECTIONS = {"norm": norm_rows, "movement": movement_rows, "pointwise": pointwise_rows}
