#!/usr/bin/env python3
"""Whole models on a GPU beside PyTorch, in one run: eager in a CUDA graph, torch.compile, and Ingot on the exported graph.

usage: models.py INGOT OUTDIR [--models a,b] [--batches 1,64] [--types fp16,fp32,tf32,bf16] [--compile]

Each model is built with random weights as torchvision or transformers defines it, exported in fp32 by torch.onnx, and run on
the same random input by all; Ingot gets the type by --precision, PyTorch by converting the model (channels last for images;
fp32 with tf32 allowed, its fast setting, beside Ingot's fp32 that keeps fp32 accuracy, and its tf32).
Prints one line a model, batch and type: milliseconds (medians; PyTorch by events around a graph replay; Ingot with inputs
and outputs on the device, and the sum of its kernels one by one), the ratio of the best peer to Ingot, and the relative
errors (Frobenius) of Ingot's and PyTorch's outputs against PyTorch's in fp32.
"""
import argparse, json, os, re, subprocess, sys, time
import numpy as np
import torch


class Experts(torch.nn.Module):
    """Four two-layer experts, weighted by the softmax of a gate."""

    def __init__(self, width=4096, hidden=8192, count=4):
        super().__init__()
        self.gate = torch.nn.Linear(width, count)
        self.up = torch.nn.ModuleList(torch.nn.Linear(width, hidden) for _ in range(count))
        self.down = torch.nn.ModuleList(torch.nn.Linear(hidden, width) for _ in range(count))

    def forward(self, x):
        weights = torch.softmax(self.gate(x), -1)
        parts = [down(torch.relu(up(x))) for up, down in zip(self.up, self.down)]
        return sum(weights[:, i:i + 1] * p for i, p in enumerate(parts))


class Sentiment(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = torch.nn.ModuleList(torch.nn.Conv1d(4096, 1024, k) for k in (3, 5, 7, 9))
        self.experts = Experts()
        sizes = [4096, 2048, 1024, 512, 2]
        self.dense = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))

    def forward(self, x):
        x = torch.cat([torch.relu(c(x)).amax(-1) for c in self.convs], 1)
        x = self.experts(x)
        for i, layer in enumerate(self.dense):
            x = layer(x) if i == 3 else torch.relu(layer(x))
        return x


class Logits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(input_ids=ids, attention_mask=torch.ones_like(ids))[0]


def build(name):
    """The model in fp32, and a function from batch size to its input."""
    torch.manual_seed(0)
    if name == "sentiment":
        return Sentiment(), lambda b: torch.randn(b, 4096, 16)
    if name in ("bert_base", "gpt2"):
        import transformers
        if name == "bert_base":
            model = transformers.BertModel(transformers.BertConfig(attn_implementation="sdpa"))
            return Logits(model), lambda b: torch.randint(0, 30000, (b, 128))
        config = transformers.GPT2Config(attn_implementation="sdpa", use_cache=False)
        return Logits(transformers.GPT2Model(config)), lambda b: torch.randint(0, 50000, (b, 512))
    import torchvision
    model = getattr(torchvision.models, name)(weights=None).cuda()
    # Statistics of random images, so that values neither vanish nor grow on their way; a classifier that is not zero.
    model.train()
    for m in model.modules():
        if isinstance(m, torch.nn.BatchNorm2d):
            m.momentum = None
    with torch.no_grad():
        for _ in range(3):
            model(torch.randn(16, 3, 224, 224, device="cuda"))
        for m in list(model.modules())[-1:]:
            if isinstance(m, torch.nn.Linear):
                m.weight.normal_(0, 0.02)
    return model.cpu(), lambda b: torch.randn(b, 3, 224, 224)


def graph_ms(model, x):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), torch.no_grad():
        for _ in range(3):
            model(x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        model(x)
    return median_ms(graph.replay)


def median_ms(call, seconds=0.4):
    """As long as Ingot is measured: sustained work lowers the card's clock."""
    times, start = [], time.time()
    while time.time() - start < seconds or len(times) < 10:
        begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)[len(times) // 2]


def compiled_ms(model, x):
    torch._dynamo.reset()
    fast = torch.compile(model, mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(4):
            fast(x)
        return median_ms(lambda: fast(x))


def export(model, x, path):
    axes = {"x": {0: "batch"}, "y": {0: "batch"}}
    torch.onnx.export(model, (x,), path, opset_version=17, dynamo=False, input_names=["x"], output_names=["y"],
                      dynamic_axes=axes)


PRECISIONS = {"fp16": "fp16", "fp32": "fp32", "tf32": "tf32", "bf16": "bf16"}


def ingot_bench(ingot, path, kind, batch, log):
    """Milliseconds with data on the device, the sum of the kernels' times, and their number."""
    command = [ingot, "bench", path, "--device", "cuda:0", "--batch", str(batch), "--precision", PRECISIONS[kind]]
    fast = subprocess.run(command + ["--duration", "0.4", "--io", "device", "--json"], capture_output=True, text=True, timeout=200)
    text = subprocess.run(command + ["--duration", "0.2", "--profile"], capture_output=True, text=True, timeout=200)
    open(log, "w").write(text.stdout + text.stderr + fast.stderr)
    kernels = re.search(r"([\d.]+) ms in (\d+) kernels", text.stdout)
    try:
        latency = json.loads(fast.stdout)["p50_ms"]
    except (ValueError, KeyError):
        latency = None
    return latency, float(kernels[1]) if kernels else None, int(kernels[2]) if kernels else None


def ingot_error(ingot, path, kind, x, expected, out):
    np.save(f"{out}/x.npy", x.cpu().numpy())
    subprocess.run([ingot, "run", path, "--device", "cuda:0", "--precision", PRECISIONS[kind], "--input", f"{out}/x.npy",
                    "--output-dir", out], capture_output=True, text=True, timeout=200)
    try:
        y = np.load(f"{out}/y.npy").astype(np.float64)
    except OSError:
        return float("nan")
    return np.linalg.norm(y - expected) / np.linalg.norm(expected)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ingot")
    parser.add_argument("out")
    parser.add_argument("--models", default="resnet50,mobilenet_v2,efficientnet_b0,convnext_tiny,vit_b_16,bert_base,gpt2,sentiment")
    parser.add_argument("--batches", default="1,64")
    parser.add_argument("--types", default="fp16")
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    print("model            type batch | graph ms compile ms | ingot ms kernels ms count | best peer/ingot | error    peer's", flush=True)
    for name in args.models.split(","):
        reference, make = build(name)
        reference = reference.eval().cuda()
        path = f"{args.out}/{name}.onnx"
        try:
            x = make(2)
            export(reference, x.cuda(), path)
        except Exception as e:
            print(name, "export failed:", str(e)[:200].replace("\n", " "), flush=True)
            continue
        for kind in args.types.split(","):
            dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(kind, torch.float32)
            model, _ = build(name)
            model.load_state_dict(reference.state_dict())
            model = model.eval().cuda().to(dtype)
            for batch in map(int, args.batches.split(",")):
                x = make(batch).cuda()
                y = x.to(dtype) if x.is_floating_point() else x
                if y.dim() == 4 and dtype != torch.float32:
                    model, y = model.to(memory_format=torch.channels_last), y.contiguous(memory_format=torch.channels_last)
                eager = graph_ms(model, y)
                fast = compiled_ms(model, y) if args.compile else float("nan")
                latency, kernels, count = ingot_bench(args.ingot, path, kind, batch, f"{args.out}/{name}-{kind}-{batch}.txt")
                error = peer = float("nan")
                if batch == 1:
                    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
                    with torch.no_grad():
                        expected = reference(x).double().cpu().numpy()
                    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
                    with torch.no_grad():
                        peer = np.linalg.norm(model(y).double().cpu().numpy() - expected) / np.linalg.norm(expected)
                    error = ingot_error(args.ingot, path, kind, x, expected, args.out)
                best = min(t for t in (eager, fast) if t == t)
                ratio = best / latency if latency else float("nan")
                print(f"{name:16} {kind} {batch:5} | {eager:8.3f} {fast:8.3f} | {latency} {kernels} {count} | {ratio:6.2f} | {error:.2e} {peer:.2e}",
                      flush=True)
            model = None
            torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main())
