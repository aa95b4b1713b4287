#!/usr/bin/env python3
"""How long a model takes to compile: with an empty and with a full store, without and with plans by measurement
(--tune).

usage: build_time.py INGOT MODEL.onnx OUTDIR [--device cuda:0] [--precision fp16] [--tune 60] [--json FILE]

Seconds are those of the whole process. "cold" starts with an empty store, "warm" repeats the same command. Both files
are then measured by turns at each of --batches, which shows what the time for --tune buys, and that it costs nothing.
Exits with 1 if a command failed.
"""

import argparse
import json
import pathlib
import shutil
import statistics
import sys

from deployment import Bench, Failed, OutOfTime, print_row, target_of


def compile_twice(bench, args, file, options):
    """Seconds with an empty store, and with what the first time left there."""
    shutil.rmtree(args.out / "cache", ignore_errors=True)
    words = ["compile", args.model, "-o", file, "--target", target_of(bench), "--precision", args.precision, *options]
    return [bench.run(*words)[1] for _ in range(2)]


def compare(bench, files, batch, rounds=5):
    """The median latency in ms of each file with tensors on the device, measured by turns."""
    times = {name: [] for name in files}
    for _ in range(rounds):
        for name, file in files.items():
            times[name].append(bench.bench(file, "--io", "device", "--batch", batch)["p50_ms"])
    return {name: statistics.median(t) for name, t in times.items()}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ingot")
    parser.add_argument("model", metavar="MODEL.onnx", type=pathlib.Path)
    parser.add_argument("out", metavar="OUTDIR", type=pathlib.Path)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--precision", default="fp16")
    parser.add_argument("--tune", type=float, default=60, help="seconds for measuring plans; 0: not at all")
    parser.add_argument("--batches", default="1,64")
    parser.add_argument("--seconds", type=float, default=0.2, help="of each measurement")
    parser.add_argument("--budget", type=float, default=300, help="seconds for all of it")
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args()


def main():
    args = parse_arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    bench, sides = Bench(args), {"default": []}
    if args.tune and not args.device.startswith("cpu"):
        sides[f"--tune {args.tune:g}"] = ["--tune", args.tune, "--tune-device", args.device]
    found = dict(
        what="build time", model=args.model.stem, device=args.device, precision=args.precision, seconds={}, ms={}
    )
    files = {name: args.out / f"plans{i}.ingot" for i, name in enumerate(sides)}
    problem = None
    try:
        for name, options in sides.items():
            found["seconds"][name] = dict(zip(("cold", "warm"), compile_twice(bench, args, files[name], options)))
        for batch in args.batches.split(","):
            found["ms"][batch] = compare(bench, files, batch)
    except (Failed, OutOfTime) as e:
        problem = str(e) or "out of time"
    print_row([args.model.stem, *[f"batch {b}, ms" for b in found["ms"]], "cold, s", "warm, s"])
    print_row(["---"] * (3 + len(found["ms"])))
    for name, seconds in found["seconds"].items():
        print_row(
            [
                name,
                *[f"{ms[name]:.3f}" for ms in found["ms"].values()],
                f"{seconds['cold']:.2f}",
                f"{seconds['warm']:.2f}",
            ]
        )
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(found, indent=1), encoding="utf-8")
    if problem:
        print(problem, file=sys.stderr)
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
