"""Rows of kernels.py whose time is products: matrices, convolutions and attention.

Bars are microseconds of hand-made kernels of the same kind on an H200, from runs of their own: they say what is
possible there, and only the peers of the same run give ratios.
"""

import torch
import torch.nn.functional as F
from onnx import helper
from torch.nn.attention import SDPBackend, sdpa_kernel

from rows import Candidate, Row, Spec

GEMMS = [
    (8192, 8192, 8192),
    (4096, 4096, 4096),
    (2048, 2048, 2048),
    (1024, 1024, 1024),
    (512, 512, 512),
    (8192, 3072, 768),
    (8192, 768, 3072),
    (12608, 768, 768),
    (12608, 768, 3072),
    (12608, 3072, 768),
    (128, 3072, 768),
    (128, 768, 3072),
    (128, 768, 768),
    (64, 4096, 4096),
    (1, 4096, 4096),
]
# plain, bias and Gelu, bias and residual; fp16
GEMM_BARS = {
    (8192, 8192, 8192): (1391,),
    (4096, 4096, 4096): (177.6, 188.4),
    (2048, 2048, 2048): (25.35, 27.7),
    (1024, 1024, 1024): (6.27, 7.1),
    (512, 512, 512): (4.0, 4.4),
    (8192, 3072, 768): (55.1, 62.9, 64.2),
    (12608, 768, 3072): (79.4, 85.3, 86.6),
    (12608, 3072, 768): (83.4, 95.9, 98.6),
    (128, 3072, 768): (4.84, 5.34),
    (128, 768, 3072): (6.04, 6.5),
    (128, 768, 768): (4.33, 4.65),
    (64, 4096, 4096): (11.93, 12.5),
    (1, 4096, 4096): (11.43,),
}
TAILS = ("plain", "gelu", "residual")


def size_of(kind):
    return {"tf32": 4, "fp32": 4, "int8": 1}.get(kind, 2)


def with_tf32(kind, name, call):
    """Peers of f32 without and with tf32: only the first has as exact results, and counts."""
    if kind != "fp32":
        return [Candidate(name, call)]
    return [Candidate(name, call, tf32=False), Candidate(f"{name}, tf32", call, counts=False, tf32=True)]


def gemm_row(kind, shape, tail):
    m, n, k = shape
    inputs, weights = {"x": Spec((m, k))}, {"w": Spec((n, k), k**-0.5)}
    moved = size_of(kind) * (m * k + n * k + m * n * (2 if tail == "residual" else 1))
    if tail != "plain":
        weights["b"] = Spec((n,))
    if tail == "residual":
        inputs["r"] = Spec((m, n))

    def nodes(v, results):
        y = results[0]
        out = [
            helper.make_node(
                "Gemm", [v["x"], v["w"]] + ([v["b"]] if "b" in v else []), [y if tail == "plain" else y + "p"], transB=1
            )
        ]
        if tail == "gelu":
            out.append(helper.make_node("Gelu", [y + "p"], [y]))
        if tail == "residual":
            out.append(helper.make_node("Add", [y + "p", v["r"]], [y]))
        return out

    def call(v):
        y = F.linear(v["x"], v["w"], v.get("b"))
        return F.gelu(y) if tail == "gelu" else y + v["r"] if tail == "residual" else y

    bars = dict(zip(TAILS, GEMM_BARS.get(shape, ())))
    return Row(
        "gemm",
        f"gemm {m}x{n}x{k} {tail}",
        kind,
        2 * m * n * k,
        moved,
        inputs,
        weights,
        nodes,
        with_tf32(kind, "PyTorch", call),
        call,
        bars={"hand-made": bars.get(tail)},
    )


def gemm_rows(kind):
    for shape in GEMMS:
        for tail in TAILS:
            yield gemm_row(kind, shape, tail)


# ---- convolutions ----------------------------------------------------------------------------------------------------

# ResNet-50's: channels, filters, filter size, stride, image size, times in the network, hand-made kernels at batch
# 64, 8, 1
RESNET = {
    "stem": (3, 64, 7, 2, 224, 1, 118.9, 18.4, 4.5),
    "l1_1x1a": (64, 64, 1, 1, 56, 1, 15.1, 4.6, 2.3),
    "l1_3x3": (64, 64, 3, 1, 56, 3, 35.3, 8.3, 3.5),
    "l1_1x1b": (64, 256, 1, 1, 56, 4, 64.6, 11.9, 3.9),
    "l1_1x1c": (256, 64, 1, 1, 56, 2, 33.2, 6.9, 3.5),
    "l2_1x1a": (256, 128, 1, 1, 56, 1, 40.9, 8.3, 3.8),
    "l2_3x3s2": (128, 128, 3, 2, 56, 1, 27.1, 7.2, 4.4),
    "l2_1x1b": (128, 512, 1, 1, 28, 4, 35.8, 8.2, 3.5),
    "l2_ds": (256, 512, 1, 2, 56, 1, 27.1, 7.1, 3.5),
    "l2_1x1c": (512, 128, 1, 1, 28, 3, 19.0, 5.6, 3.2),
    "l2_3x3": (128, 128, 3, 1, 28, 3, 24.1, 7.2, 4.1),
    "l3_1x1a": (512, 256, 1, 1, 28, 1, 26.1, 6.9, 3.8),
    "l3_3x3s2": (256, 256, 3, 2, 28, 1, 23.1, 8.0, 5.3),
    "l3_1x1b": (256, 1024, 1, 1, 14, 6, 22.1, 6.4, 3.1),
    "l3_ds": (512, 1024, 1, 2, 28, 1, 22.9, 6.7, 3.9),
    "l3_1x1c": (1024, 256, 1, 1, 14, 5, 13.9, 5.5, 4.0),
    "l3_3x3": (256, 256, 3, 1, 14, 5, 22.7, 8.3, 5.3),
    "l4_1x1a": (1024, 512, 1, 1, 14, 1, 21.6, 6.5, 4.9),
    "l4_3x3s2": (512, 512, 3, 2, 14, 1, 25.5, 10.1, 6.0),
    "l4_1x1b": (512, 2048, 1, 1, 7, 3, 16.3, 5.8, 4.0),
    "l4_ds": (1024, 2048, 1, 2, 14, 1, 22.6, 6.7, 5.4),
    "l4_1x1c": (2048, 512, 1, 1, 7, 2, 14.2, 7.0, 4.6),
    "l4_3x3": (512, 512, 3, 1, 7, 2, 25.7, 10.3, 6.0),
}
RESIDUAL = ("l1_1x1b", "l2_1x1b", "l3_1x1b", "l4_1x1b")
BATCHES = (64, 8, 1)


def channels_last(values):
    """The peer's form: images as views in the order N, C, H, W, filters in the same memory order."""
    out = {n: t.permute(0, 3, 1, 2) if t.dim() == 4 and n != "w" else t for n, t in values.items()}
    out["w"] = values["w"].contiguous(memory_format=torch.channels_last)
    return out


def conv_nodes(filt, stride):
    def nodes(v, results):
        y, residual = results[0], "r" in v
        out = [
            helper.make_node("Transpose", [v["x"]], [y + "t"], perm=[0, 3, 1, 2]),
            helper.make_node(
                "Conv",
                [y + "t", v["w"], v["b"]],
                [y + "c"],
                kernel_shape=[filt, filt],
                strides=[stride, stride],
                pads=[filt // 2] * 4,
            ),
        ]
        if residual:
            out += [
                helper.make_node("Transpose", [v["r"]], [y + "rt"], perm=[0, 3, 1, 2]),
                helper.make_node("Add", [y + "c", y + "rt"], [y + "s"]),
            ]
        return out + [
            helper.make_node("Relu", [y + ("s" if residual else "c")], [y + "a"]),
            helper.make_node("Transpose", [y + "a"], [y], perm=[0, 2, 3, 1]),
        ]

    return nodes


def conv_row(section, name, kind, batch, layer, residual, count=1, bar=None):
    c, o, filt, stride, size = layer
    pad, out = filt // 2, (size + 2 * (filt // 2) - filt) // stride + 1
    ends = [stride, stride], [pad, pad]
    inputs = {"x": Spec((batch, size, size, c))} | ({"r": Spec((batch, out, out, o))} if residual else {})
    weights = {"w": Spec((o, c, filt, filt), (c * filt * filt) ** -0.5), "b": Spec((o,))}
    read = size * size / (stride * stride if filt == 1 else 1)
    moved = size_of(kind) * (batch * (read * c + out * out * o * (2 if residual else 1)) + o * c * filt * filt)

    def fused(v):
        if residual:
            return torch.cudnn_convolution_add_relu(v["x"], v["w"], v["r"], 1.0, v["b"], *ends, [1, 1], 1)
        return torch.cudnn_convolution_relu(v["x"], v["w"], v["b"], *ends, [1, 1], 1)

    def eager(v):
        y = F.conv2d(v["x"], v["w"], v["b"], *ends)
        return (y.add_(v["r"]) if residual else y).relu_()

    reference = lambda v: eager(channels_last(v)).permute(0, 2, 3, 1)
    alone = Candidate("convolution alone", lambda v: F.conv2d(v["x"], v["w"], None, *ends), counts=False)
    return Row(
        section,
        name,
        kind,
        2 * batch * out * out * o * c * filt * filt,
        moved,
        inputs,
        weights,
        conv_nodes(filt, stride),
        [Candidate("cuDNN fused", fused), *with_tf32(kind, "eager", eager), alone],
        reference,
        prepare=channels_last,
        count=count,
        bars={"hand-made": bar},
    )


def resnet_rows(kind):
    for at, batch in enumerate(BATCHES):
        for name, (*layer, count, b64, b8, b1) in RESNET.items():
            text = f"resnet b{batch} {name} {layer[0]}>{layer[1]} {layer[4]}x{layer[4]} f{layer[2]} s{layer[3]}"
            yield conv_row("resnet", text, kind, batch, layer, name in RESIDUAL, count, (b64, b8, b1)[at])


# ---- attention -------------------------------------------------------------------------------------------------------

# batch, heads, heads of keys, queries, keys, channels, causal
ATTENTION = [
    (1, 12, 12, 128, 128, 64, 0),
    (64, 12, 12, 128, 128, 64, 0),
    (64, 12, 12, 197, 197, 64, 0),
    (8, 12, 12, 512, 512, 64, 0),
    (4, 16, 16, 4096, 4096, 128, 0),
    (8, 12, 12, 512, 512, 64, 1),
    (64, 12, 12, 512, 512, 64, 1),
    (2, 16, 16, 4096, 4096, 128, 1),
    (1, 32, 8, 1, 4096, 128, 0),
    (8, 32, 8, 1, 4096, 128, 0),
    (32, 32, 8, 1, 4096, 128, 0),
    (1, 12, 12, 1, 1024, 64, 0),
    (1, 32, 8, 1, 32768, 128, 0),
    (4, 32, 8, 4, 4096, 128, 0),
]


def attention_rows(kind):
    for b, h, g, m, n, d, causal in ATTENTION:
        pairs = m * (m + 1) // 2 if causal else m * n
        name = f"attention {b}x{h}x{m}x{d}" if (g, n) == (h, m) else f"attention {b}x{h}/{g}x{m}/{n}x{d}"
        inputs = {"x": Spec((b, h, m, d)), "k": Spec((b, g, n, d)), "v": Spec((b, g, n, d))}
        call = lambda v, c=bool(causal), grouped=g != h: F.scaled_dot_product_attention(
            v["x"], v["k"], v["v"], is_causal=c, enable_gqa=grouped
        )

        def by_cudnn(v, call=call):
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                return call(v)

        nodes = lambda v, results, c=causal: [
            helper.make_node("Attention", [v["x"], v["k"], v["v"]], results, is_causal=c)
        ]
        yield Row(
            "attention",
            name + (" causal" if causal else ""),
            kind,
            4 * b * h * pairs * d,
            size_of(kind) * 2 * b * d * (h * m + g * n),
            inputs,
            {},
            nodes,
            [Candidate("PyTorch", call), Candidate("cuDNN", by_cudnn)],
            call,
        )


SECTIONS = {"gemm": gemm_rows, "resnet": resnet_rows, "attention": attention_rows}
