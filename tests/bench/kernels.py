#!/usr/bin/env python3
"""Single kernels on a GPU beside cuBLAS, cuDNN and PyTorch's attention, in one run.

usage: kernels.py INGOT OUTDIR [--rows gemm,conv,attention,rows] [--filter TEXT] [--type fp16|bf16|tf32|fp32] [--tile TILE]

Each row is one operation with what is fused into it. Several of it, on inputs of their own (so that inputs come from memory
as far as L2 does not hold all of them), are one CUDA graph, for the peer as for Ingot; the figure is the median time of the
graph divided by their number. Ingot compiles an ONNX model of the row with its sizes fixed. Random inputs; Ingot's result is compared with
PyTorch's in fp32 (relative Frobenius error). --tile forces one tile (INGOT_TILE), for experiments.
"""
import argparse, json, os, subprocess, sys, time
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
import torch
import torch.nn.functional as F

GEMMS = [(8192, 8192, 8192), (4096, 4096, 4096), (2048, 2048, 2048), (1024, 1024, 1024), (512, 512, 512),
         (8192, 3072, 768), (8192, 768, 3072), (12608, 768, 768), (12608, 768, 3072), (12608, 3072, 768), (128, 3072, 768), (128, 768, 3072),
         (128, 768, 768), (64, 4096, 4096), (1, 4096, 4096)]
CONVS = [(64, 64, 56, 1, 1), (64, 64, 56, 3, 1), (256, 64, 56, 1, 1), (64, 256, 56, 1, 1), (128, 128, 28, 3, 1),
         (256, 256, 14, 3, 1), (512, 512, 7, 3, 1), (512, 2048, 7, 1, 1), (3, 64, 224, 7, 2), (128, 128, 56, 3, 2)]
# batch, heads, heads of keys, queries, keys, channels, causal
ATTENTION = [(1, 12, 12, 128, 128, 64, 0), (64, 12, 12, 128, 128, 64, 0), (64, 12, 12, 197, 197, 64, 0), (8, 12, 12, 512, 512, 64, 0),
             (4, 16, 16, 4096, 4096, 128, 0), (8, 12, 12, 512, 512, 64, 1), (64, 12, 12, 512, 512, 64, 1), (2, 16, 16, 4096, 4096, 128, 1),
             (1, 32, 8, 1, 4096, 128, 0), (8, 32, 8, 1, 4096, 128, 0), (32, 32, 8, 1, 4096, 128, 0), (1, 12, 12, 1, 1024, 64, 0),
             (1, 32, 8, 1, 32768, 128, 0), (4, 32, 8, 4, 4096, 128, 0)]
ROWS = [(8192, 768), (12608, 768), (65536, 1024), (4096, 32000)]
SECONDS = 0.15   # of measurement, for both: sustained work lowers the card's clock
TORCH = {"fp16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32, "fp32": torch.float32}
ONNX = {"fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16, "tf32": TensorProto.FLOAT, "fp32": TensorProto.FLOAT}


class Row:
    """A model with `copies` inputs `x0`..., the peer's function of one of them, and what it costs."""

    def __init__(self, name, kind, shape, flops, moved):
        self.name, self.kind, self.shape, self.flops, self.moved = name, kind, shape, flops, moved
        self.copies = 2 if moved > 1 << 26 else 8
        self.weights, self.extra = {}, {}     # shared by all copies; one for each copy
        self.nodes = None                      # (input, extras, output) -> ONNX nodes
        self.peer = None                       # (x, weights, extras) -> y

    def model(self, path):
        kind, nodes, inputs, outputs = ONNX[self.kind], [], [], []
        for i in range(self.copies):
            names = {e: f"{e}{i}" for e in self.extra}
            inputs.append(helper.make_tensor_value_info(f"x{i}", kind, self.shape))
            inputs += [helper.make_tensor_value_info(names[e], kind, list(t.shape)) for e, t in self.extra.items()]
            outputs.append(helper.make_empty_tensor_value_info(f"y{i}"))
            nodes += self.nodes(f"x{i}", names, f"y{i}")
        tensors = []
        for name, w in self.weights.items():
            tensor = numpy_helper.from_array(w.cpu().numpy().astype(np.float32), name)
            if self.kind == "fp16":
                tensor = numpy_helper.from_array(w.cpu().numpy().astype(np.float16), name)
            if self.kind == "bf16":
                bits = w.to(torch.bfloat16).view(torch.int16).cpu().numpy()
                tensor = helper.make_tensor(name, TensorProto.BFLOAT16, list(w.shape), bits.tobytes(), raw=True)
            tensors.append(tensor)
        for o in outputs:
            o.type.tensor_type.elem_type = kind
        graph = helper.make_graph(nodes, "row", inputs, outputs, tensors)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11), path)


def rand(*shape, scale=1.0):
    return torch.randn(*shape, device="cuda") * scale


def gemm_rows(kind):
    for m, n, k in GEMMS:
        for tail in ("plain", "gelu", "residual"):
            size = 4 if kind in ("tf32", "fp32") else 2
            row = Row(f"gemm {m}x{n}x{k} {tail}", kind, [m, k], 2 * m * n * k, size * (m * k + n * k + m * n))
            row.weights["w"] = rand(n, k, scale=k ** -0.5)
            if tail != "plain":
                row.weights["bias"] = rand(n)
            if tail == "residual":
                row.extra["r"] = rand(m, n)
                row.moved += size * m * n

            def nodes(x, extra, y, tail=tail):
                out = [helper.make_node("Gemm", [x, "w"] + (["bias"] if tail != "plain" else []), [y if tail == "plain" else y + "p"], transB=1)]
                if tail == "gelu":
                    out.append(helper.make_node("Gelu", [y + "p"], [y]))
                if tail == "residual":
                    out.append(helper.make_node("Add", [y + "p", extra["r"]], [y]))
                return out

            def peer(x, w, extra, tail=tail):
                y = F.linear(x, w["w"], w.get("bias"))
                return F.gelu(y) if tail == "gelu" else y + extra["r"] if tail == "residual" else y

            row.nodes, row.peer = nodes, peer
            yield row


def conv_rows(kind):
    for batch in (1, 8, 64):
        for c, o, size, filt, stride in CONVS:
            pad, out = filt // 2, (size + 2 * (filt // 2) - filt) // stride + 1
            row = Row(f"conv b{batch} {c}>{o} {size}x{size} f{filt} s{stride} relu", kind, [batch, c, size, size],
                      2 * batch * out * out * o * c * filt * filt, 2 * (batch * c * size * size + batch * o * out * out + o * c * filt * filt))
            row.weights["w"] = rand(o, c, filt, filt, scale=(c * filt * filt) ** -0.5)
            row.weights["bias"] = rand(o)
            row.nhwc = True

            def nodes(x, extra, y, filt=filt, stride=stride, pad=pad):
                return [helper.make_node("Transpose", [x], [y + "t"], perm=[0, 3, 1, 2]),
                        helper.make_node("Conv", [y + "t", "w", "bias"], [y + "c"], kernel_shape=[filt, filt], strides=[stride, stride], pads=[pad] * 4),
                        helper.make_node("Relu", [y + "c"], [y + "r"]), helper.make_node("Transpose", [y + "r"], [y], perm=[0, 2, 3, 1])]

            def peer(x, w, extra, stride=stride, pad=pad):
                return F.relu(F.conv2d(x.permute(0, 3, 1, 2), w["w"].contiguous(memory_format=torch.channels_last), w["bias"], stride, pad)).permute(0, 2, 3, 1)

            row.shape = [batch, size, size, c]
            row.nodes, row.peer = nodes, peer
            yield row


def attention_rows(kind):
    for b, h, g, m, n, d, causal in ATTENTION:
        pairs = m * (m + 1) // 2 if causal else m * n
        name = f"attention {b}x{h}x{m}x{d}" if (g, n) == (h, m) else f"attention {b}x{h}/{g}x{m}/{n}x{d}"
        size = 4 if kind == "tf32" else 2
        row = Row(name + (" causal" if causal else ""), kind, [b, h, m, d], 4 * b * h * pairs * d, size * 2 * b * d * (h * m + g * n))
        row.extra = {"k": rand(b, g, n, d), "v": rand(b, g, n, d)}
        row.nodes = lambda x, extra, y, causal=causal: [helper.make_node("Attention", [x, extra["k"], extra["v"]], [y], is_causal=causal)]
        row.peer = lambda x, w, extra, c=bool(causal), grouped=g != h: F.scaled_dot_product_attention(x, extra["k"], extra["v"], is_causal=c, enable_gqa=grouped)
        yield row


def row_rows(kind):
    for rows, columns in ROWS:
        for what in ("layernorm", "softmax"):
            row = Row(f"{what} {rows}x{columns}", kind, [rows, columns], 0, 2 * 2 * rows * columns)
            if what == "layernorm":
                row.weights = {"w": rand(columns), "bias": rand(columns)}
                row.nodes = lambda x, extra, y: [helper.make_node("LayerNormalization", [x, "w", "bias"], [y], axis=-1)]
                row.peer = lambda x, w, extra, c=columns: F.layer_norm(x, (c,), w["w"], w["bias"])
            else:
                row.nodes = lambda x, extra, y: [helper.make_node("Softmax", [x], [y], axis=-1)]
                row.peer = lambda x, w, extra: F.softmax(x, -1)
            yield row


MAKERS = {"gemm": gemm_rows, "conv": conv_rows, "attention": attention_rows, "rows": row_rows}


def graph_ms(call, seconds=SECONDS):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), torch.no_grad():
        call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        call()
    times, start = [], time.time()
    while time.time() - start < seconds:
        begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)[len(times) // 2]


def measure(ingot, out, row, env):
    path, dtype = f"{out}/row.onnx", TORCH[row.kind]
    precision = ["--precision", "tf32"] if row.kind == "tf32" else []
    xs = [rand(*row.shape).to(dtype) for _ in range(row.copies)]
    extras = [{e: rand(*t.shape).to(dtype) for e, t in row.extra.items()} for _ in range(row.copies)]
    weights = {name: w.to(dtype) for name, w in row.weights.items()}
    peer = graph_ms(lambda: [row.peer(x, weights, e) for x, e in zip(xs, extras)]) / row.copies
    command = [ingot, "bench", path, "--device", "cuda:0", "--io", "device", "--streams", "1", "--duration", str(SECONDS), "--json"] + precision
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)
    try:
        ours = json.loads(done.stdout)["p50_ms"] / row.copies
    except (ValueError, KeyError):
        return peer, None, done.stderr.strip().split("\n")[-1]
    return peer, ours, error(ingot, out, row, xs[0], extras[0], env, precision)


def error(ingot, out, row, x, extra, env, precision):
    inputs = [f"{name}{i}" for i in range(row.copies) for name in ["x", *extra]]
    command = [ingot, "run", f"{out}/row.onnx", "--device", "cuda:0", "--output-dir", out] + precision
    if row.kind == "bf16" or x.numel() > 1 << 25:
        return None
    for name, t in {"x": x, **extra}.items():
        np.save(f"{out}/{name}.npy", t.cpu().numpy())
    for name in inputs:
        command += ["--input", f"{name}={out}/{name[0]}.npy"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)
    if done.returncode:
        return done.stderr.strip().split("\n")[-1]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    want = row.peer(x.float(), {n: w.to(TORCH[row.kind]).float() for n, w in row.weights.items()}, {e: t.float() for e, t in extra.items()})
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = row.kind == "tf32"
    got = torch.from_numpy(np.load(f"{out}/y0.npy").astype(np.float32)).cuda()
    return ((got - want).norm() / want.norm()).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ingot")
    parser.add_argument("out")
    parser.add_argument("--rows", default="gemm,conv,attention,rows")
    parser.add_argument("--filter", default="")
    parser.add_argument("--type", default="fp16", choices=TORCH)
    parser.add_argument("--tile", default="")
    args = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.type == "tf32"
    os.makedirs(args.out, exist_ok=True)
    env = dict(os.environ, **({"INGOT_TILE": args.tile} if args.tile else {}))
    ratios = []
    for maker in args.rows.split(","):
        for row in MAKERS[maker](args.type):
            if args.filter not in row.name:
                continue
            torch.manual_seed(0)
            row.model(f"{args.out}/row.onnx")
            peer, ours, err = measure(args.ingot, args.out, row, env)
            rate = lambda ms: f"{row.flops / ms / 1e9:6.0f} TF" if row.flops and row.flops / row.moved > 100 else f"{row.moved / ms / 1e9:6.2f} TB/s"
            if ours is None:
                print(f"{row.name:42} peer {peer * 1000:8.1f} us  ours failed: {err}", flush=True)
                continue
            ratios.append(peer / ours)
            shown = f"{err:.1e}" if isinstance(err, float) else str(err)
            print(f"{row.name:42} peer {peer * 1000:8.1f} us {rate(peer)}  ours {ours * 1000:8.1f} us {rate(ours)}  {peer / ours:5.2f}x  error {shown}", flush=True)
    if ratios:
        print(f"geometric mean {np.exp(np.mean(np.log(ratios))):.3f}x over {len(ratios)} rows")


if __name__ == "__main__":
    main()
