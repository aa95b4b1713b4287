"""Rows of kernels.py that are products of 8 bits: integers beside torch._int_mm, f8 beside torch._scaled_mm, and convolutions
of both beside cuDNN's in fp16."""

import numpy as np
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper

from product_rows import channels_last
from rows import Candidate, Row, Spec

GEMMS_OF_8 = [(4096, 4096, 4096), (8192, 8192, 8192), (12608, 768, 3072), (2048, 2048, 2048), (128, 3072, 768)]
CONVS_OF_8 = [(64, 64, 64, 56, 3), (64, 256, 256, 14, 3), (64, 64, 256, 56, 1), (1, 256, 256, 14, 3)]
F8_SCALE = 0.125
SCALES = {"one": np.float32(1), "z": np.int8(0)}


def rounded(sums, scale):
    return torch.clamp(torch.round(sums * scale), -128, 127)


def byte_gemm_row(m, n, k, quantised):
    """i8 by i8: MatMulInteger with its sums of i32 beside torch._int_mm, or QLinearMatMul beside the same with
    scaling, rounding and clamping, which PyTorch leaves to others."""
    scale = 2.0**-9

    def nodes(v, results):
        if quantised:
            return [helper.make_node("QLinearMatMul", [v["x"], "one", "z", v["w"], "one", "z", "s", "z"], results)]
        return [helper.make_node("MatMulInteger", [v["x"], v["w"]], results)]

    def call(v):
        sums = torch._int_mm(v["x"], v["w"])
        return rounded(sums.float(), scale).to(torch.int8) if quantised else sums

    def reference(v):
        sums = v["x"] @ v["w"]  # integers below 2^53: exact
        return rounded(sums, scale) if quantised else sums

    return Row(
        "bytes",
        f"bytes {m}x{n}x{k} {'quantised' if quantised else 'sums'}",
        "int8",
        2 * m * n * k,
        m * k + n * k + m * n * (1 if quantised else 4),
        {"x": Spec((m, k))},
        {"w": Spec((k, n))},
        nodes,
        [Candidate("PyTorch", call)],
        reference,
        exact=True,
        output_type=torch.int8 if quantised else torch.int32,
        constants=SCALES | {"s": np.float32(1 / scale)} if quantised else {},
        prepare=lambda v: dict(v, w=v["w"].t().contiguous().t()),
    )


def convolution_row(section, kind, sizes, nodes, reference, **options):
    """A convolution of 8 bits, channels last at both ends, beside cuDNN's in fp16."""
    batch, c, o, size, filt = sizes
    return Row(
        section,
        f"{section} conv b{batch} {c}>{o} {size}x{size} f{filt}",
        kind,
        2 * batch * size * size * o * c * filt * filt,
        batch * size * size * (c + o) + o * c * filt * filt,
        {"x": Spec((batch, size, size, c))},
        {"w": Spec((o, c, filt, filt))},
        nodes,
        [Candidate("cuDNN fp16", lambda v: F.conv2d(v["x"], v["w"], padding=filt // 2))],
        reference,
        prepare=lambda v: channels_last({n: t.half() for n, t in v.items()}),
        **options,
    )


def byte_conv_row(batch, c, o, size, filt):
    """QLinearConv, channels last at both ends, beside cuDNN's convolution of fp16."""
    scale, pad = 2.0**-11, filt // 2

    def nodes(v, results):
        y = results[0]
        return [
            helper.make_node("Transpose", [v["x"]], [y + "t"], perm=[0, 3, 1, 2]),
            helper.make_node(
                "QLinearConv",
                [y + "t", "one", "z", v["w"], "one", "z", "s", "z"],
                [y + "c"],
                kernel_shape=[filt, filt],
                pads=[pad] * 4,
            ),
            helper.make_node("Transpose", [y + "c"], [y], perm=[0, 2, 3, 1]),
        ]

    def reference(v):
        sums = F.conv2d(v["x"].permute(0, 3, 1, 2), v["w"], padding=pad).round()  # f64 sums in any order are integers
        return rounded(sums, scale).permute(0, 2, 3, 1)

    return convolution_row("bytes", "int8", (batch, c, o, size, filt), nodes, reference, exact=True, constants=SCALES | {"s": np.float32(1 / scale)})


def byte_rows(_):
    for shape in GEMMS_OF_8:
        for quantised in (False, True):
            yield byte_gemm_row(*shape, quantised)
    for shape in CONVS_OF_8:
        yield byte_conv_row(*shape)


# ---- products of f8 --------------------------------------------------------------------------------------------------


def f8_nodes(v, y):
    """DequantizeLinear of both operands."""
    return [helper.make_node("DequantizeLinear", [v[name], "t"], [y + name]) for name in "xw"]


def f8_gemm_row(m, n, k):
    """Results of f16, beside torch._scaled_mm without its fast sums."""

    def call(v):
        return torch._scaled_mm(
            v["x"], v["w"], scale_a=v["t"], scale_b=v["t"], out_dtype=torch.float16, use_fast_accum=False
        )

    def prepare(v):
        scale = torch.full((), F8_SCALE, device=v["x"].device)
        return dict(v, w=v["w"].t().contiguous().t(), t=scale)

    return Row(
        "f8",
        f"f8 {m}x{n}x{k}",
        "fp8",
        2 * m * n * k,
        m * k + n * k + m * n * 2,
        {"x": Spec((m, k))},
        {"w": Spec((k, n))},
        lambda v, results: f8_nodes(v, results[0])
        + [helper.make_node("MatMul", [results[0] + "x", results[0] + "w"], results)],
        [Candidate("PyTorch", call)],
        lambda v: v["x"] @ v["w"] * F8_SCALE**2,
        output_type=torch.float16,
        constants={"t": np.float16(F8_SCALE)},
        prepare=prepare,
    )


def f8_conv_row(batch, c, o, size, filt):
    """Results of f8, channels last at both ends, beside cuDNN's convolution of fp16."""
    pad = filt // 2

    def nodes(v, results):
        y = results[0]
        conv = dict(kernel_shape=[filt, filt], pads=[pad] * 4)
        return [
            helper.make_node("Transpose", [v["x"]], [y + "t"], perm=[0, 3, 1, 2]),
            *f8_nodes(dict(v, x=y + "t"), y),
            helper.make_node("Conv", [y + "x", y + "w"], [y + "c"], **conv),
            helper.make_node("QuantizeLinear", [y + "c", "t"], [y + "q"], output_dtype=TensorProto.FLOAT8E4M3FN),
            helper.make_node("Transpose", [y + "q"], [y], perm=[0, 2, 3, 1]),
        ]

    def reference(v):
        sums = F.conv2d(v["x"].permute(0, 3, 1, 2), v["w"], padding=pad).permute(0, 2, 3, 1) * F8_SCALE**2
        quantised = sums.half().double() / F8_SCALE  # the convolution's result is f16 in the model
        return quantised.clamp(-448, 448).to(torch.float8_e4m3fn)

    return convolution_row("f8", "fp8", (batch, c, o, size, filt), nodes, reference, constants={"t": np.float16(F8_SCALE)})


def f8_rows(_):
    for shape in GEMMS_OF_8:
        yield f8_gemm_row(*shape)
    for shape in CONVS_OF_8:
        yield f8_conv_row(*shape)


SECTIONS = {"bytes": byte_rows, "f8": f8_rows}
KINDS = {"bytes": "int8", "f8": "fp8"}  # of the rows of a section, whatever --type says
