"""Compares exported models with ONNX Runtime: seeded weights and inputs, batch 1 and 3, every output.

    python tests/oracle/exports.py ../shared/exports --scratch /tmp/exports

Each graph gets its weights from make_weights.py beside it; they are deleted again after the comparison. A graph is ok when
the relative error in the Frobenius norm of every output is below the tolerance at every batch size. One that this
machine cannot hold (--memory) is skipped, and said to be. Exits with 1 if one is not ok.
"""

import argparse
import pathlib
import shutil
import subprocess
import sys

import ort_common as common

HERE = pathlib.Path(__file__).resolve().parent


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("exports", type=pathlib.Path, help="the folder with make_weights.py")
    parser.add_argument("--only", default="", help="graphs whose path has this text")
    parser.add_argument("--scratch", type=pathlib.Path, required=True, help="where weights are written")
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 3])
    parser.add_argument("--length", type=int, default=32, help="of other dynamic dimensions")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tolerance", type=float, default=1e-4)
    parser.add_argument("--ingot", type=pathlib.Path, default=common.DEFAULT_INGOT)
    parser.add_argument("--memory", type=float, default=0, metavar="GIB", help="skip graphs that need more (default: what is free)")
    return parser.parse_args()


def free_gib():
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable"):
            return int(line.split()[1]) / 2**20
    return float("inf")


def dims_of(path, batch, length):
    """--dim options: a symbol in front of an input is the batch, others have the given length."""
    dims = {}
    for info in common.open_session(path, optimise=False).get_inputs():
        for position, dim in enumerate(info.shape):
            if isinstance(dim, str):
                dims[dim] = batch if position == 0 else dims.get(dim, length)
    return [option for name, size in dims.items() for option in ("--dim", f"{name}={size}")]


def compare_all(model, args):
    good = True
    for batch in args.batch:
        command = [sys.executable, HERE / "compare_ort.py", model, *dims_of(model, batch, args.length)]
        command += ["--device", args.device, "--tolerance", str(args.tolerance), "--ingot", args.ingot, "--timeout", "1800"]
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
        print(f"  batch {batch}: " + (done.stdout + done.stderr).strip().replace("\n", "\n           "), flush=True)
        good &= done.returncode == 0
    return good


def main():
    args = parse_arguments()
    counts = {"ok": 0, "FAIL": 0, "skipped": 0}
    for graph in sorted(args.exports.glob("*/*/model.onnx")):
        name = str(graph.parent.relative_to(args.exports))
        if args.only not in name:
            continue
        weights = args.scratch / name
        subprocess.run([sys.executable, args.exports / "make_weights.py", args.scratch, graph.parents[1]], check=True,
                       capture_output=True)
        # Weights in the file's mapping, in ONNX Runtime and in Ingot, and as much again while compiling.
        needed = 4 * (weights / "weights.bin").stat().st_size / 2**30
        if needed > (args.memory or free_gib()):
            verdict = "skipped"
            print(f"skipped {name}: needs {needed:.1f} GiB of memory")
        else:
            verdict = "ok" if compare_all(weights / "model.onnx", args) else "FAIL"
            print(f"{verdict} {name}", flush=True)
        counts[verdict] += 1
        shutil.rmtree(args.scratch / graph.parents[1].name)
    print(", ".join(f"{n} {verdict}" for verdict, n in counts.items()))
    return 1 if counts["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(main())
