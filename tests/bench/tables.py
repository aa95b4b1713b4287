#!/usr/bin/env python3
"""The tables of docs/performance.md from what kernels.py, models.py and build_time.py wrote with --json.

usage: tables.py FILE.json… [--mode burst|sustained]

A file may hold one run's object or a list of them. Prints Markdown: a line on where and how, then a table for each
section, then what is aimed at and whether it was reached. Times are microseconds (models: milliseconds), ratios are
to the best peer of the same round-robin; a star marks a time of a hand-made kernel that Ingot misses by more than 5%.
"""

import argparse
import json
import math

from kernels import OURS, best_peer, rate, ratio
from models import COMPILE, EAGER, GRAPH

# ms at batch 1 and 64, fp16: docs/performance.md's goals
GOALS = {
    "resnet50": (0.18, 1.65),
    "mobilenet_v2": (0.11, 0.75),
    "efficientnet_b0": (0.17, 1.1),
    "convnext_tiny": (0.25, 2.4),
    "vit_b_16": (0.33, 4.1),
    "bert_base": (0.29, 2.6),
    "gpt2": (0.5, 10.5),
    "sentiment": (0.23, 0.4),
}
RESNET_SUMS = {64: 1520, 8: 407, 1: 216}  # us, hand-made kernels
RESNET_LAYERS = 48  # of 53 ahead of the best of cuDNN


def number(value):
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 20 else f"{value:.2f}"


def times(value):
    return f"{value:.2f}" if value else ""


def print_row(cells):
    print("| " + " | ".join(cells) + " |")


def print_head(cells):
    print()
    print_row(cells)
    print_row(["---"] * len(cells))


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def print_mean(ratios):
    least = min(ratios, default=float("nan"))
    print(f"\nRatio to the best peer, geometric mean of {len(ratios)} rows: {mean(ratios):.2f}; least {least:.2f}.")


def error_text(row):
    if "error" not in row:
        return row["failures"].get(OURS, "failed").replace("|", "/")
    return f"{row['error']:.1e}"


def bar_text(row, mode):
    """Times of hand-made kernels, with a star where Ingot takes more than 5% longer."""
    ours = row.get(mode, {}).get(OURS)
    return ", ".join(f"{number(us)}{'*' if ours and ours > 1.05 * us else ''}" for us in row["bars"].values())


def kernel_table(section, rows, mode):
    """One row a line; a column for each candidate that any row has."""
    names = [n for n in dict.fromkeys(n for r in rows for n in r.get(mode, {})) if n != OURS]
    bars = any(r["bars"] for r in rows)
    print_head(
        [f"{section}, {rows[0]['kind']}, us", *names, OURS, "rate", "ratio", "error"] + (["hand-made"] if bars else [])
    )
    for row in rows:
        found = row.get(mode, {})
        ours = found.get(OURS)
        print_row(
            [
                row["name"],
                *[number(found.get(n)) for n in names],
                number(ours),
                rate(row, ours) if ours else "",
                times(ratio(row, mode)),
                error_text(row),
            ]
            + ([bar_text(row, mode)] if bars else [])
        )
    ratios = [r for r in (ratio(row, mode) for row in rows) if r]
    print_mean(ratios)
    barred = [r for r in rows if r["bars"] and OURS in r.get(mode, {})]
    if barred:
        within = sum(r[mode][OURS] <= 1.05 * max(r["bars"].values()) for r in barred)
        print(
            f"Within 5% of the hand-made kernel (of the slower, where there are two): {within} of {len(barred)} rows."
        )


def gemm_goals(rows, mode):
    for tail, least, average in (("plain", 0.92, 1.0), ("gelu", 1.0, 1.25), ("residual", 1.0, 1.25)):
        ratios = [r for r in (ratio(row, mode) for row in rows if row["name"].endswith(tail)) if r]
        if ratios:
            average_here, least_here = mean(ratios), min(ratios)
            reached = "reached" if least_here >= least and average_here >= average else "not reached"
            print(f"{tail}: mean {average_here:.2f} (aim {average}), least {least_here:.2f} (aim {least}): {reached}.")


def batch_of(row):
    return int(row["name"].split(" b")[1].split()[0])


def resnet_sums(rows, mode):
    """Sums over the network's 53 convolutions, each distinct layer as often as it occurs."""
    print_head(
        ["53 convolutions, us", "convolution alone", "best of cuDNN", OURS, "hand-made", "layers ahead of cuDNN"]
    )
    for batch in sorted({batch_of(r) for r in rows}, reverse=True):
        layers = [r for r in rows if batch_of(r) == batch and OURS in r.get(mode, {}) and best_peer(r, mode)]
        total = lambda of: sum(r["count"] * of(r) for r in layers)
        count, ahead = total(lambda r: 1), total(lambda r: ratio(r, mode) > 1)
        alone = total(lambda r: r[mode].get("convolution alone", float("nan")))
        print_row(
            [
                f"batch {batch}" + ("" if count == 53 else f" ({count} of them only)"),
                number(alone),
                number(total(lambda r: best_peer(r, mode))),
                number(total(lambda r: r[mode][OURS])),
                number(RESNET_SUMS[batch]),
                f"{ahead} (aim {RESNET_LAYERS})",
            ]
        )


def kernels(run, mode):
    print(
        f"\n{run['date']}, {run['device']}, PyTorch {run['torch']}, `tests/bench/kernels.py`, {run['kind']}, {mode}"
        + (f" ({run['idle_ms']:.0f} ms idle before a sample)" if mode == "burst" else "")
        + "."
    )
    for section in dict.fromkeys(r["section"] for r in run["rows"]):
        rows = [r for r in run["rows"] if r["section"] == section]
        kernel_table(section, rows, mode)
        if section == "gemm":
            gemm_goals(rows, mode)
        if section == "resnet":
            resnet_sums(rows, mode)
    if run["left_out"]:
        print(f"\n{run['left_out']} rows were not measured: out of time.")


def models(run, mode):
    print(f"\n{run['date']}, {run['device']}, PyTorch {run['torch']}, `tests/bench/models.py`, medians, {mode}", end="")
    print(" (batch 1: burst). Errors against PyTorch in fp32.")
    for kind in dict.fromkeys(r["kind"] for r in run["rows"]):
        goals = kind == "fp16"
        print_head(
            [
                f"model, {kind}, ms",
                "batch",
                EAGER,
                GRAPH,
                COMPILE,
                OURS,
                "best peer / Ingot",
                "kernels",
                "error: Ingot, PyTorch",
            ]
            + (["goal"] if goals else [])
        )
        ratios = []
        for row in (r for r in run["rows"] if r["kind"] == kind):
            at = mode if mode in row else "burst"
            found, best = row[at], ratio(row, at)
            ms = lambda name, found=found, row=row: (
                f"{found.get(name, row['burst'].get(name)):.3f}" if name in row["burst"] else ""
            )
            errors = f"{error_text(row)}, {row['peer_error']:.1e}"
            parts = str(row["launches"]) + (f", {row['kernels_ms']:.3f} ms" if "kernels_ms" in row else "")
            goal = GOALS.get(row["model"], (None, None))[row["batch"] > 1] if row["batch"] in (1, 64) else None
            reached = ", reached" if goal and found.get(OURS, math.inf) <= goal else ""
            print_row(
                [
                    row["model"],
                    str(row["batch"]),
                    ms(EAGER),
                    ms(GRAPH),
                    ms(COMPILE),
                    ms(OURS),
                    times(best),
                    parts,
                    errors,
                ]
                + ([f"{goal or ''}{reached}"] if goals else [])
            )
            ratios += [best] if best else []
        print_mean(ratios)
    for row in run["rows"]:
        for name, why in row["failures"].items():
            print(f"{row['name']}: {name}: {why}.")


def build_time(run, mode):
    del mode
    batches = list(run["ms"])
    print_head(
        [
            f"{run['model']}, {run['precision']}, compiled",
            *[f"batch {b}, ms" for b in batches],
            "store empty, s",
            "store full, s",
        ]
    )
    for name, seconds in run["seconds"].items():
        print_row(
            [name, *[f"{run['ms'][b][name]:.3f}" for b in batches], f"{seconds['cold']:.2f}", f"{seconds['warm']:.2f}"]
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--mode", default="burst", choices=["burst", "sustained"])
    args = parser.parse_args()
    for path in args.files:
        with open(path, encoding="utf-8") as f:
            runs = json.load(f)
        for run in runs if isinstance(runs, list) else [runs]:
            {"kernels": kernels, "models": models, "build time": build_time}[run["what"]](run, args.mode)


if __name__ == "__main__":
    main()
