"""Kernels after fusion of real networks, against the table kernel_counts.tsv; and a reason for each pair of neighbours.

    python3 tests/kernel_counts_test.py build/release/bin/ingot ../shared [MODEL]

Weights of exports, whose files have none, are drawn at random. Exit code 77 where the models are not there.
"""
import csv
import json
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

MOVES = {"Transpose", "Reshape", "Contiguous", "ChannelsLast", "Cast", "Slice", "Concat", "Pad", "Expand"}
INTEGERS = {"int32": "i", "int64": "q", "uint8": "B", "int8": "b", "bool": "?"}
# Of about the size of weights, and no two neighbours alike: kernels do not depend on more.
NOISE = struct.pack("<65536f", *(random.Random(1).gauss(0, 0.02) for _ in range(65536)))


def write_weights(table, path):
    """The file that weights.tsv describes, with values of our own."""
    with open(table, newline="") as rows, open(path, "wb") as out:
        for row in csv.DictReader(rows, delimiter="\t"):
            size = int(row["bytes"])
            out.seek(int(row["offset"]))
            if row["dtype"] in INTEGERS:
                kind = INTEGERS[row["dtype"]]
                count = size // struct.calcsize(kind)
                draw = random.Random(row["name"])
                out.write(struct.pack(f"<{count}{kind}", *(draw.randint(int(float(row["min"])), int(float(row["max"]))) for _ in range(count))))
            else:
                start = zlib.crc32(row["name"].encode()) % 65536 * 4  # so that no two weights are equal
                turned = NOISE[start:] + NOISE[:start]
                for at in range(0, size, len(NOISE)):
                    out.write(turned[:size - at])


def inspect(ingot, model):
    command = [ingot, "inspect", str(model), "--target", "sm_90a", "--precision", "fp16", "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def inner_copies(report):
    """Kernels that only move, and neither read the model's input nor write its output."""
    readers = {n["producer"] for n in report["neighbours"]}
    writers = {n["consumer"] for n in report["neighbours"]}
    for k, group in enumerate(report["groups"]):
        only_moves = all(line.split()[0] in MOVES for line in group["operators"])
        if only_moves and k in readers and k in writers:
            yield k, group


def faults(report, most, without):
    if report["kernels"] > most:
        yield f"{report['kernels']} kernels, at most {most}"
    if "joined" in without:
        for k, group in enumerate(report["groups"]):
            if group["kind"] == "points" and any(line.split()[0] == "Concat" for line in group["operators"]):
                yield f"kernel {k} concatenates: {group['operators']}"
    if "layout" in without:
        for k, group in inner_copies(report):
            yield f"kernel {k} only moves: {group['operators']}"
    for n in report["neighbours"]:
        if not n["reason"]:
            yield f"kernels {n['producer']} and {n['consumer']} have no reason to be two"
    if report["bytes_after"] > report["bytes_before"]:
        yield f"fusion moves more: {report['bytes_after']} bytes, of {report['bytes_before']} without"


def main():
    ingot, shared, wanted = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
    lines = (pathlib.Path(__file__).parent / "kernel_counts.tsv").read_text().splitlines()
    failed = checked = 0
    for name, most, without in (line.split("\t") for line in lines if not line.startswith("#")):
        folder = shared / name
        if not (folder / "model.onnx").exists() or wanted and not any(w in name for w in wanted):
            continue
        with tempfile.TemporaryDirectory() as work:
            if (folder / "weights.tsv").exists():
                shutil.copy(folder / "model.onnx", work)
                write_weights(folder / "weights.tsv", pathlib.Path(work, "weights.bin"))
                folder = pathlib.Path(work)
            report = inspect(ingot, folder / "model.onnx")
        found = list(faults(report, int(most), without.split()))
        print(f"{'FAIL' if found else 'ok  '} {name}: {report['kernels']} kernels of {most}, {len(report['neighbours'])} pairs", *found, sep="\n     ")
        failed += bool(found)
        checked += 1
    if not checked:
        print(f"skipped: no models in {shared}")
        return 77
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
