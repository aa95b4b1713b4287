#!/usr/bin/env python3
"""Single kernels beside cuBLAS, cuDNN and PyTorch's own, in one process and one run.

usage: kernels.py INGOT LIBRARY OUTDIR [--rows gemm,resnet,…] [--type fp16|bf16|tf32|fp32] [--filter TEXT]
                  [--tile TILE] [--modes burst,sustained] [--budget SECONDS] [--json FILE] [--csv FILE]

INGOT compiles, LIBRARY (libingot_runtime.so) runs. Each row is one operation with what is fused into it. Everything is
compiled first, many at a time; then Ingot and the peers of a row are measured as timing.py says, all in one
round-robin, on values of rows.py: several sets of inputs, weights and results, more than the cache holds.

The error is Ingot's against PyTorch in f64 (relative, Frobenius, the worst of two sets; for results of f8 by the sum
of sizes; "share" of results that differ where these are integers or only moved). "bars" are times of hand-made kernels
from elsewhere. fp32 keeps the accuracy of f32, so its peer is PyTorch without tf32; the same with tf32 is shown as
well. When the budget is used up the remaining rows are left out, and said to be. The same with --device cpu tries the
script out without a GPU.

Exits with 1 if any row of Ingot failed or has an error above --tolerance.
"""

import argparse
import csv
import datetime
import json
import math
import os
import subprocess
import sys
import time

import torch

import eight_bit_rows
import image_rows
import memory_rows
import product_rows
import rows as row_kit
from ingot_runtime import Runtime

SECTIONS = product_rows.SECTIONS | eight_bit_rows.SECTIONS | image_rows.SECTIONS | memory_rows.SECTIONS
# relative errors that rounding of the kind explains, with room for sums in the kind's precision
TOLERANCE = {"fp16": 2e-3, "bf16": 1.6e-2, "tf32": 2e-3, "fp32": 1e-5, "int8": 0.0, "fp8": 1e-3}
OURS = row_kit.OURS


def best_peer(row, mode):
    times = [row[mode][p] for p in row["peers"] if p in row.get(mode, {})]
    return min(times) if times else None


def ratio(row, mode):
    """How many times as fast as the best peer; None where one of them is missing."""
    ours, peer = row.get(mode, {}).get(OURS), best_peer(row, mode)
    return peer / ours if ours and peer else None


def rate(row, us):
    if row["flops"] > 100 * row["moved"]:
        return f"{row['flops'] / us / 1e6:.0f} TF"
    return f"{row['moved'] / us / 1e6:.2f} TB/s"


def print_row(row):
    for mode in ("burst", "sustained"):
        if mode not in row:
            continue
        text = "  ".join(f"{name} {us:.2f}" for name, us in row[mode].items())
        if OURS in row[mode]:
            text += f"  {rate(row, row[mode][OURS])}"
            error = f"{row['error']:.1e}" if "error" in row else "?"
            text += f"  {ratio(row, mode) or float('nan'):.2f}x  error {error}"
        bars = "  ".join(f"{name} {us}" for name, us in row["bars"].items())
        print(f"{row['name']:44} {row['sets']:2} {mode:9} {text}{'  | ' + bars if bars else ''}", flush=True)
    for name, why in row["failures"].items():
        print(f"{row['name']:44}    {name} failed: {why}", flush=True)


def print_means(found):
    for mode in ("burst", "sustained"):
        ratios = [r for r in (ratio(row, mode) for row in found) if r]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            print(
                f"{mode}: geometric mean {mean:.3f}x of the best peer over {len(ratios)} rows, least {min(ratios):.2f}x"
            )


def target_of(device):
    if device.startswith("cpu"):
        return "cpu"
    major, minor = torch.cuda.get_device_capability(int(device.split(":")[1]))
    return f"sm_{major}{minor}" + ("a" if (major, minor) == (9, 0) else "")


def describe(args):
    on_gpu = not args.device.startswith("cpu")
    version = subprocess.run([args.ingot, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    return dict(
        what="kernels",
        date=datetime.date.today().isoformat(),
        device=torch.cuda.get_device_name() if on_gpu else "cpu",
        torch=torch.__version__,
        cudnn=torch.backends.cudnn.version() if on_gpu else None,
        ingot=version,
        kind=args.type,
        idle_ms=args.idle,
        rounds=args.rounds,
        tile=args.tile,
    )


def write_csv(path, found):
    with open(path, "w", newline="", encoding="utf-8") as f:
        out = csv.writer(f)
        out.writerow(["section", "name", "type", "sets", "mode", "candidate", "us", "ratio to the best peer", "error"])
        for row in found:
            for mode in ("burst", "sustained"):
                for name, us in row.get(mode, {}).items():
                    mine = name == OURS
                    out.writerow(
                        [
                            row["section"],
                            row["name"],
                            row["kind"],
                            row["sets"],
                            mode,
                            name,
                            f"{us:.3f}",
                            ratio(row, mode) if mine else "",
                            row.get("error", "") if mine else "",
                        ]
                    )


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ingot")
    parser.add_argument("library", metavar="LIBRARY", help="libingot_runtime.so")
    parser.add_argument("out", metavar="OUTDIR", help="for models while they are compiled; best in memory")
    parser.add_argument("--rows", default=",".join(SECTIONS), help="sections (default: %(default)s)")
    parser.add_argument("--filter", default="", help="only rows whose name holds one of these, separated by commas")
    parser.add_argument("--type", default="fp16", choices=row_kit.TORCH)
    parser.add_argument("--tile", default="", help="forces one tile (INGOT_TILE), for experiments")
    parser.add_argument("--modes", default="burst", help="burst, sustained or both (default: %(default)s)")
    parser.add_argument("--idle", type=float, default=80, help="ms before a sample; a quarter of it for small rows")
    parser.add_argument("--rounds", type=int, default=7, help="samples of each candidate in bursts")
    parser.add_argument("--sustain", type=float, default=0.15, help="seconds of each candidate when sustained")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds for all of it")
    parser.add_argument("--compile-seconds", type=float, default=100, help="for one row")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) * 3 // 4), help="compilers at a time")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--tolerance", type=float, help="largest error; default: by type")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--csv", metavar="FILE")
    args = parser.parse_args()
    args.target = target_of(args.device)
    return args


def selected(args):
    for section in args.rows.split(","):
        for row in SECTIONS[section](eight_bit_rows.KINDS.get(section, args.type)):
            if any(text in row.name for text in args.filter.split(",")):
                yield row


def write_json(path, value):
    """Replaces the file as a whole."""
    with open(path + ".part", "w", encoding="utf-8") as f:
        json.dump(value, f, indent=1)
    os.replace(path + ".part", path)


def measure_all(rows, args):
    """Rows as found, written after each of them. Ends early when the device has failed or the budget is used up."""
    start, found, runtime, about = time.monotonic(), [], Runtime(args.library), describe(args)
    files = row_kit.compile_rows(rows, args)
    compiling = time.monotonic() - start
    print(f"{len(rows)} rows compiled in {compiling:.0f} s", flush=True)
    for row, (file, problem) in zip(rows, files):
        if time.monotonic() - start > args.budget:
            print(f"{row.name:44}    not measured: out of time", flush=True)
            continue
        found.append(row_kit.Measurement(row, args, runtime).run(file, problem))
        print_row(found[-1])
        if args.json:
            write_json(args.json, about | dict(compile_seconds=compiling, left_out=len(rows) - len(found), rows=found))
        if not problem:
            os.remove(file)
        if not args.device.startswith("cpu"):
            torch.cuda.empty_cache()
            try:
                torch.cuda.synchronize()
            except RuntimeError as e:
                print(f"the device failed: {e}", flush=True)
                break
    return found


def main():
    args = parse_arguments()
    torch.backends.cudnn.benchmark = True
    torch.set_grad_enabled(False)
    os.makedirs(args.out, exist_ok=True)
    rows = list(selected(args))
    found = measure_all(rows, args)
    print_means(found)
    if args.csv:
        write_csv(args.csv, found)
    limit = lambda row: TOLERANCE[row["kind"]] if args.tolerance is None else args.tolerance
    wrong = [row["name"] for row in found if not row.get("error", float("nan")) <= limit(row)]
    if wrong:
        print(f"{len(wrong)} rows failed or wrong: {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong or len(found) < len(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
