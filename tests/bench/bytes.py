#!/usr/bin/env python3
"""Products of 8-bit integers on a GPU beside torch._int_mm, of f8 beside torch._scaled_mm, and convolutions of both beside cuDNN's in fp16, in one run.

usage: bytes.py INGOT OUTDIR [--filter TEXT]

Measured as in kernels.py: several of the operation on inputs of their own in one CUDA graph, both for as long. "sums" is
MatMulInteger (i8 by i8, i32 results); "quantised" is QLinearMatMul beside torch._int_mm with the scaling, rounding and clamping
that it leaves to others; a convolution is QLinearConv with a Relu's clamp, channels last at both ends. "f8" is DequantizeLinear of both
operands, MatMul and a result of f16, beside torch._scaled_mm without its fast sums; an f8 convolution ends in QuantizeLinear. Results are compared
exactly where PyTorch computes the same integers: the last column is the share of results that differ; of f8 products it is the Frobenius error
of ours and of the peer's against sums in f64.
"""
import argparse, itertools, json, os, subprocess
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
import torch
import torch.nn.functional as F
from kernels import SECONDS, graph_ms

GEMMS = [(4096, 4096, 4096), (8192, 8192, 8192), (12608, 768, 3072), (2048, 2048, 2048), (128, 3072, 768)]
CONVS = [(64, 64, 64, 56, 3), (64, 256, 256, 14, 3), (64, 64, 256, 56, 1), (1, 256, 256, 14, 3)]
SCALE, ZERO = 2.0 ** -9, 0
COPIES = 4


def constants(**values):
    return [numpy_helper.from_array(np.asarray(v), name) for name, v in values.items()]


def small(name, tensor):
    """A torch tensor of float8_e4m3fn as an initializer."""
    bits = tensor.view(torch.uint8).contiguous().cpu().numpy()
    return helper.make_tensor(name, TensorProto.FLOAT8E4M3FN, bits.shape, bits.tobytes(), raw=True)


def save(path, nodes, shape, kind, tensors, of=TensorProto.INT8):
    """`nodes` of (x, y) for each copy; x of type `of`, y of `kind`."""
    inputs = [helper.make_tensor_value_info(f"x{i}", of, shape) for i in range(COPIES)]
    outputs = [helper.make_empty_tensor_value_info(f"y{i}") for i in range(COPIES)]
    for o in outputs:
        o.type.tensor_type.elem_type = kind
    graph = helper.make_graph([n for i in range(COPIES) for n in nodes(f"x{i}", f"y{i}")], "row", inputs, outputs, tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)


def quantised(sums):
    return torch.clamp(torch.round(sums.float() * SCALE) + ZERO, -128, 127).to(torch.int8)


def rows(path):
    """(name, operations, inputs, peer); the model is at `path` when a row comes."""
    for m, n, k in GEMMS:
        w = torch.randint(-128, 128, (n, k), device="cuda", dtype=torch.int8)
        xs = [torch.randint(-128, 128, (m, k), device="cuda", dtype=torch.int8) for _ in range(COPIES)]
        weight = constants(w=w.t().contiguous().cpu().numpy())
        save(path, lambda x, y: [helper.make_node("MatMulInteger", [x, "w"], [y])], [m, k], TensorProto.INT32, weight)
        yield f"gemm {m}x{n}x{k} sums", 2 * m * n * k, xs, lambda x, w=w: torch._int_mm(x, w.t())
        scales = constants(one=np.float32(1), s=np.float32(1 / SCALE), z=np.int8(0))
        save(path, lambda x, y: [helper.make_node("QLinearMatMul", [x, "one", "z", "w", "one", "z", "s", "z"], [y])], [m, k],
             TensorProto.INT8, weight + scales)
        yield f"gemm {m}x{n}x{k} quantised", 2 * m * n * k, xs, lambda x, w=w: quantised(torch._int_mm(x, w.t()))
    for batch, c, o, size, filt in CONVS:
        w = torch.randint(-128, 128, (o, c, filt, filt), device="cuda", dtype=torch.int8)
        xs = [torch.randint(-128, 128, (batch, size, size, c), device="cuda", dtype=torch.int8) for _ in range(COPIES)]
        save(path, lambda x, y: [helper.make_node("Transpose", [x], [y + "t"], perm=[0, 3, 1, 2]),
                                 helper.make_node("QLinearConv", [y + "t", "one", "z", "w", "one", "z", "s", "z"], [y + "c"], kernel_shape=[filt, filt], pads=[filt // 2] * 4),
                                 helper.make_node("Transpose", [y + "c"], [y], perm=[0, 2, 3, 1])],
             [batch, size, size, c], TensorProto.INT8,
             constants(w=w.cpu().numpy(), one=np.float32(1), s=np.float32(2048), z=np.int8(0)))
        half = w.half().contiguous(memory_format=torch.channels_last)
        yield (f"conv b{batch} {c}>{o} {size}x{size} f{filt}", 2 * batch * size * size * o * c * filt * filt, xs,
               lambda x, w=half, p=filt // 2: F.conv2d(x.half().permute(0, 3, 1, 2) if x.dtype != torch.float16 else x.permute(0, 3, 1, 2), w, padding=p))


def f8_rows(path):
    """The same for f8."""
    F8 = TensorProto.FLOAT8E4M3FN
    random = lambda *shape: torch.randn(*shape, device="cuda").to(torch.float8_e4m3fn)
    scales = constants(s=np.float16(0.125), t=np.float16(0.125), q=np.float16(0.5)) + [helper.make_tensor("z", F8, [], bytes(1), raw=True)]
    one = torch.tensor(0.125, device="cuda")
    dequantise = lambda x, y: [helper.make_node("DequantizeLinear", [x, "s"], [y + "a"]), helper.make_node("DequantizeLinear", ["w", "t"], [y + "b"])]
    for m, n, k in GEMMS:
        w = random(n, k)
        xs = [random(m, k) for _ in range(COPIES)]
        save(path, lambda x, y: dequantise(x, y) + [helper.make_node("MatMul", [y + "a", y + "b"], [y])], [m, k], TensorProto.FLOAT16,
             [small("w", w.view(torch.uint8).t().contiguous())] + scales, F8)
        yield (f"gemm {m}x{n}x{k} f8", 2 * m * n * k, xs,
               lambda x, w=w: torch._scaled_mm(x, w.t(), scale_a=one, scale_b=one, out_dtype=torch.float16, use_fast_accum=False))
    for batch, c, o, size, filt in CONVS:
        w = random(o, c, filt, filt)
        xs = [random(batch, size, size, c) for _ in range(COPIES)]
        save(path, lambda x, y: [helper.make_node("Transpose", [x], [y + "t"], perm=[0, 3, 1, 2])] + dequantise(y + "t", y) +
                                [helper.make_node("Conv", [y + "a", y + "b"], [y + "c"], kernel_shape=[filt, filt], pads=[filt // 2] * 4),
                                 helper.make_node("QuantizeLinear", [y + "c", "q", "z"], [y + "d"]), helper.make_node("Transpose", [y + "d"], [y], perm=[0, 2, 3, 1])],
             [batch, size, size, c], F8, [small("w", w)] + scales, F8)
        half = w.half().contiguous(memory_format=torch.channels_last)
        yield (f"conv b{batch} {c}>{o} {size}x{size} f{filt} f8", 2 * batch * size * size * o * c * filt * filt, xs,
               lambda x, w=half, p=filt // 2: F.conv2d(x.permute(0, 3, 1, 2), w, padding=p))


def f8_errors(ingot, out, xs, peer):
    """Of both, against sums in f64 of some rows."""
    with open(f"{out}/x.pb", "wb") as f:
        f.write(small("x", xs[0]).SerializeToString())
    command = [ingot, "run", f"{out}/row.onnx", "--device", "cuda:0", "--output-dir", out]
    for i in range(COPIES):
        command += ["--input", f"x{i}={out}/x.pb"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode:
        return done.stderr.strip().split("\n")[-1]
    weight = [t for t in onnx.load(f"{out}/row.onnx").graph.initializer if t.name == "w"][0]
    w = torch.frombuffer(bytearray(weight.raw_data), dtype=torch.uint8).view(torch.float8_e4m3fn).reshape(tuple(weight.dims)).double()
    rows = slice(0, xs[0].shape[0], max(xs[0].shape[0] // 64, 1))
    want = xs[0][rows].cpu().double() @ w * 0.125 ** 2
    error = lambda y: ((y.double() - want).norm() / want.norm()).item()
    return f"{error(torch.from_numpy(np.load(f'{out}/y0.npy'))[rows]):.1e} peer {error(peer(xs[0])[rows].cpu()):.1e}"


def differing(ingot, out, xs, peer):
    """The share of results that are not PyTorch's; None where those are no integers."""
    if xs[0].dtype == torch.float8_e4m3fn:
        return f8_errors(ingot, out, xs, peer) if xs[0].dim() == 2 else None
    want = peer(xs[0])
    if want.dtype not in (torch.int8, torch.int32) or xs[0].numel() > 1 << 25:
        return None
    np.save(f"{out}/x.npy", xs[0].cpu().numpy())
    command = [ingot, "run", f"{out}/row.onnx", "--device", "cuda:0", "--output-dir", out]
    for i in range(COPIES):
        command += ["--input", f"x{i}={out}/x.npy"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode:
        return done.stderr.strip().split("\n")[-1]
    return (torch.from_numpy(np.load(f"{out}/y0.npy")).cuda() != want).float().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ingot")
    parser.add_argument("out")
    parser.add_argument("--filter", default="")
    args = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    os.makedirs(args.out, exist_ok=True)
    torch.manual_seed(0)
    for name, operations, xs, peer in itertools.chain(rows(f"{args.out}/row.onnx"), f8_rows(f"{args.out}/row.onnx")):
        if args.filter not in name:
            continue
        halves = [x.half() for x in xs] if name.startswith("conv") else xs
        theirs = graph_ms(lambda: [peer(x) for x in halves]) / COPIES
        command = [args.ingot, "bench", f"{args.out}/row.onnx", "--device", "cuda:0", "--io", "device", "--streams", "1", "--duration", str(SECONDS), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode:
            print(f"{name:36} failed: {done.stderr.strip()}", flush=True)
            continue
        ours = json.loads(done.stdout)["p50_ms"] / COPIES
        rate = lambda ms: f"{operations / ms / 1e9:6.0f} TOP/s"
        print(f"{name:36} peer {theirs * 1000:8.1f} us {rate(theirs)}  ours {ours * 1000:8.1f} us {rate(ours)}  {theirs / ours:5.2f}x  differing {differing(args.ingot, args.out, xs, peer)}", flush=True)


if __name__ == "__main__":
    main()
