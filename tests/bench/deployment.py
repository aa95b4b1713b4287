#!/usr/bin/env python3
"""Deployment figures of the machine at hand, as one Markdown table.

usage: deployment.py INGOT MODELS OUTDIR [--device cuda:0] [--precision fp16] [--seconds 0.25] [--budget 150]

What it measures: what an enqueue costs the host with and without a CUDA graph; the time from a cold process to the first
result; what streams for branches gain at batch 1; what a queue with overlapped copies gains from host memory; files against
their weights; planning of a new shape; the batch that is worth waiting for; compiling with a cold and with a warm store.

MODELS holds NAME.onnx, NAME/model.onnx or NAME/*/model.onnx for the models of `--models`; one that is missing is left out,
and said to be. A graph whose weights are not stored (a weights.tsv beside it, and no weights.bin) gets seeded ones in
OUTDIR. Everything is compiled before anything is measured. Figures are medians; two that are compared are measured in turns.
When the budget (seconds, for all of it) is used up, the remaining rows say so. Exits with 1 if a command failed.
"""
import argparse
import concurrent.futures
import csv
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time
import zlib

import numpy as np

MODELS = "resnet50,bert_base,inception_v3,sentiment"


class OutOfTime(Exception):
    pass


class Failed(Exception):
    pass


class Bench:
    """The commands of one run: INGOT with a store of its own, inside the budget."""

    def __init__(self, args):
        self.ingot, self.out, self.device, self.args = os.path.abspath(args.ingot), args.out, args.device, args
        self.end = time.monotonic() + args.budget
        self.environment = dict(os.environ, INGOT_CACHE_DIR=str(args.out / "cache"))

    def run(self, *words):
        """Standard output, and seconds of wall clock with the start of the process."""
        left = self.end - time.monotonic()
        if left < 1:
            raise OutOfTime()
        start = time.monotonic()
        try:
            done = subprocess.run([self.ingot, *map(str, words)], capture_output=True, text=True, timeout=left, check=False,
                                  env=self.environment)
        except subprocess.TimeoutExpired as e:
            raise OutOfTime() from e
        if done.returncode != 0:
            raise Failed(f"ingot {' '.join(map(str, words))}: exit {done.returncode}: {done.stderr.strip()}")
        return done.stdout, time.monotonic() - start

    def bench(self, file, *options):
        words = ["bench", file, "--device", self.device, "--json", *options]
        if "--duration" not in options:
            words += ["--duration", self.args.seconds]
        return json.loads(self.run(*words)[0])

    def in_turns(self, file, key, *sides, rounds=3):
        """The median of `key` for each list of options in `sides`, measured one after the other, `rounds` times."""
        values = [[] for _ in sides]
        for _ in range(rounds):
            for at, options in enumerate(sides):
                values[at].append(self.bench(file, *options)[key])
        return [statistics.median(v) for v in values]


# ---- models ----------------------------------------------------------------------------------------------------------


def find_model(folder, name):
    for pattern in (f"{name}.onnx", f"{name}/model.onnx", f"{name}/torchscript/model.onnx", f"{name}/*/model.onnx"):
        for path in sorted(folder.glob(pattern)):
            return path
    return None


def write_weights(table, path):
    """weights.bin from the rows of a weights.tsv: seeded values of each tensor's mean and deviation, inside its range."""
    normal = np.random.default_rng(7).standard_normal(1 << 22, dtype=np.float32)
    with open(path, "wb") as f:
        for row in csv.DictReader(open(table, encoding="utf-8"), delimiter="\t"):
            count = int(np.prod([int(d) for d in row["dims"].split("x")])) if row["dims"] else 1
            mean, std, low, high = (float(row[k]) for k in ("mean", "std", "min", "max"))
            start = zlib.crc32(row["name"].encode()) % normal.size
            values = np.resize(np.roll(normal, -start), count) * np.float32(std) + np.float32(mean)
            f.seek(int(row["offset"]))
            f.write(np.clip(values, low, high).astype(row["dtype"]).tobytes())


def with_weights(model, out):
    """The model itself, or a copy in `out` that has its external weights beside it."""
    table = model.parent / "weights.tsv"
    if not table.exists() or (model.parent / "weights.bin").exists():
        return model
    out.mkdir(parents=True, exist_ok=True)
    if not (out / "weights.bin").exists():
        write_weights(table, out / "weights.part")
        os.replace(out / "weights.part", out / "weights.bin")
    return pathlib.Path(shutil.copy(model, out))


def target_of(bench):
    if bench.device.startswith("cpu"):
        return "cpu"
    found = re.search(rf"^{re.escape(bench.device)}:.* (sm_[0-9a-z]+),", bench.run("devices")[0], re.M)
    if not found:
        sys.exit(f"no device {bench.device} here")
    return found[1]


def compile_models(bench, names):
    """Engine files by name; why a model has none; and seconds of compiling the first one with a cold and a warm store."""
    target, files, problems, times = target_of(bench), {}, {}, []

    def build(name):
        found = find_model(bench.args.models_folder, name)
        if not found:
            problems[name] = f"not below {bench.args.models_folder}"
            return None
        try:
            model, file = with_weights(found, bench.out / "models" / name), bench.out / f"{name}.ingot"
            words = ["compile", model, "-o", file, "--target", target, "--precision", bench.args.precision]
            seconds = bench.run(*words)[1]
        except Failed as e:
            problems[name] = str(e).replace("\n", " ").replace("|", "/")
            return None
        except OutOfTime:
            problems[name] = "out of time"
            return None
        files[name] = file
        return words, seconds

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(build, names[1:]))
    first = build(names[0])  # by itself: its time is a figure
    if first:
        times = [first[1], bench.run(*first[0])[1]]
    return {n: files[n] for n in names if n in files}, problems, times


# ---- figures: each gives rows of (figure, value, against, gain) --------------------------------------------------------


def gain(slow, fast):
    return f"{100 * (slow / fast - 1):.0f}%"


def enqueue_cost(bench, name, file):
    on, off = bench.in_turns(file, "host_enqueue_us", ["--io", "device", "--graph", "on"], ["--io", "device", "--graph", "off"])
    yield f"host cost of an enqueue, {name}, batch 1: graph / launch by launch", f"{on:.1f} us", f"{off:.1f} us", f"{off / on:.0f} times"


def graph_gain(bench, name, file):
    on, off = bench.in_turns(file, "p50_ms", ["--io", "device", "--graph", "on"], ["--io", "device", "--graph", "off"])
    yield f"device time, {name}, batch 1: graph / launch by launch", f"{on:.3f} ms", f"{off:.3f} ms", gain(off, on)


def first_result(bench, name, file):
    whole = [bench.run("run", file, "--device", bench.device)[1] * 1000 for _ in range(3)]
    inside = [bench.bench(file, "--duration", "0.01") for _ in range(3)]
    load, first = (statistics.median(j[k] for j in inside) for k in ("load_ms", "first_ms"))
    yield (f"first result of a cold process, {name}, batch 1: engine file loaded and first run / whole process", f"{load + first:.0f} ms",
           f"{statistics.median(whole):.0f} ms", f"load {load:.0f} ms, first run {first:.1f} ms")


def streams_gain(bench, name, file):
    many, one = bench.in_turns(file, "p50_ms", ["--io", "device"], ["--io", "device", "--streams", "1"])
    yield f"streams for branches, {name}, batch 1: all / one", f"{many:.3f} ms", f"{one:.3f} ms", gain(one, many)


def overlap_gain(bench, name, file, batch):
    sides = [["--io", io, "--batch", batch] for io in ("host", "run", "device")]
    queue, single, device = bench.in_turns(file, "ms", *sides, rounds=2)
    yield f"copies overlapped over a queue, {name}, batch {batch}: queue / one request at a time", f"{queue:.2f} ms", f"{single:.2f} ms", gain(single, queue)
    yield "the same with tensors on the device", f"{device:.2f} ms", "", ""


def file_sizes(bench, files):
    for name, file in files.items():
        weights = json.loads(bench.run("inspect", file, "--json")[0])["weight_bytes"]
        size = os.path.getsize(file)
        yield f"file / weights, {name}", f"{size / 1e6:.2f} MB", f"{weights / 1e6:.2f} MB", f"{100 * (size / weights - 1):.2f}% more"


def batches(bench, name, file):
    found = bench.bench(file, "--find-batch")
    speeds = found["batches"]
    best = next(s for s in speeds if s["batch"] == found["best_batch"])
    plans = [s["plan_us"] for s in speeds]
    yield (f"best batch, {name} (`--find-batch`) / batch 1", f"{best['batch']}: {best['per_second']:.0f} items/s",
           f"{speeds[0]['per_second']:.0f} items/s", f"{best['per_second'] / speeds[0]['per_second']:.1f} times")
    yield (f"planning a new shape, {name}: median / slowest of {len(plans)} shapes", f"{statistics.median(plans):.0f} us",
           f"{max(plans):.0f} us", "")


def figures(files):
    """(title, function of the Bench that yields rows) for each group of rows, the ones asked for first in front."""
    has = files.get
    for name in ("resnet50", "bert_base"):
        if has(name):
            yield f"enqueue, {name}", lambda b, n=name: enqueue_cost(b, n, files[n])
    if has("resnet50"):
        yield "first result", lambda b: first_result(b, "resnet50", files["resnet50"])
    for name in ("inception_v3", "sentiment"):
        if has(name):
            yield f"streams, {name}", lambda b, n=name: streams_gain(b, n, files[n])
    if has("resnet50"):
        yield "overlap", lambda b: overlap_gain(b, "resnet50", files["resnet50"], b.args.batch)
    yield "file sizes", lambda b: file_sizes(b, files)
    for name in ("bert_base", "resnet50"):
        if has(name):
            yield f"batches, {name}", lambda b, n=name: batches(b, n, files[n])
    if has("resnet50"):
        yield "graph", lambda b: graph_gain(b, "resnet50", files["resnet50"])
    others = [n for n in files if n not in MODELS.split(",")]
    for name in others:  # any model may be named: the figures that need no special one
        for make in (enqueue_cost, first_result, streams_gain, batches):
            yield f"{make.__name__}, {name}", lambda b, m=make, n=name: m(b, n, files[n])
        yield f"overlap, {name}", lambda b, n=name: overlap_gain(b, n, files[n], b.args.batch)


def print_row(cells):
    print("| " + " | ".join(cells) + " |", flush=True)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ingot")
    parser.add_argument("models_folder", metavar="MODELS", type=pathlib.Path)
    parser.add_argument("out", metavar="OUTDIR", type=pathlib.Path)
    parser.add_argument("--models", default=MODELS, help="names, the one for compile times first (default: %(default)s)")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--precision", default="fp16")
    parser.add_argument("--seconds", type=float, default=0.25, help="of each measurement")
    parser.add_argument("--batch", type=int, default=64, help="of the copies that overlap")
    parser.add_argument("--budget", type=float, default=150, help="seconds for all of it")
    return parser.parse_args()


def main():
    args = parse_arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    bench, failed, start = Bench(args), 0, time.monotonic()
    shutil.rmtree(args.out / "cache", ignore_errors=True)
    names = args.models.split(",")
    files, problems, times = compile_models(bench, names)
    print(f"{time.monotonic() - start:.0f} s of compiling.", file=sys.stderr)
    print(f"Device {args.device}, precision {args.precision}, medians.\n")
    print_row(["figure", "value", "against", "gain"])
    print_row(["---"] * 4)
    if times:
        print_row([f"compile {names[0]}, whole process: warm store / cold", f"{times[1]:.2f} s", f"{times[0]:.2f} s", ""])
    for title, make in figures(files):
        try:
            for row in make(bench):
                print_row(row)
        except OutOfTime:
            print_row([title, "not measured: out of time", "", ""])
        except Failed as e:
            failed = 1
            print_row([title, "failed", "", ""])
            print(e, file=sys.stderr)
    for name, why in problems.items():
        failed |= why.startswith("ingot")
        print_row([name, f"not measured: {why}", "", ""])
    print(f"\n{time.monotonic() - start:.0f} s in all.")
    return failed


if __name__ == "__main__":
    sys.exit(main())
