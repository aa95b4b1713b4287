"""Times ONNX models on the CPU in ONNX Runtime and in Ingot, side by side, and prints one table.

    python tests/bench/ort_compare.py ../shared/models/* examples/digits/digits.onnx

Each argument is an .onnx file or a folder with model.onnx (or with a single .onnx file). Inputs come from
test_data_set_0 beside the model, else seeded random. Both sides use the same number of threads; in each round the two
run one after the other, and the best median of the rounds counts, since other work on a machine only ever adds time.
"""

import argparse
import json
import math
import pathlib
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "oracle"))
import ort_common as common


def find_model(path):
    """The .onnx file that an argument means, or None."""
    if path.is_file():
        return path if path.suffix == ".onnx" else None
    if (path / "model.onnx").exists():
        return path / "model.onnx"
    files = list(path.glob("*.onnx"))
    return files[0] if len(files) == 1 else None


def time_ort(session, inputs, args):
    """Median of the runs in milliseconds, after the warm-up."""
    names = [o.name for o in session.get_outputs()]
    for _ in range(args.warmup):
        session.run(names, inputs)
    times = []
    for _ in range(args.runs):
        start = time.perf_counter()
        session.run(names, inputs)
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def time_ingot(model, arguments, args):
    """The p50_ms that `ingot bench --json` reports, or None."""
    command = [args.ingot, "bench", model, "--json", "--device", "cpu", *arguments, *args.ingot_args.split()]
    output = common.run_ingot(command, args.timeout)
    if output is None:
        return None
    try:
        return float(json.loads(output)["p50_ms"])
    except (ValueError, KeyError, TypeError) as error:
        print(f"no p50_ms in the output of {' '.join(map(str, command))}: {error!r}", file=sys.stderr)
        return None


def measure(model, args):
    """One row of the table."""
    row = {"model": model.parent.name if model.name == "model.onnx" else model.stem, "ort_ms": None, "ingot_ms": None}
    try:
        session = common.open_session(model, args.threads)
        inputs = common.test_data_inputs(session, model.parent / "test_data_set_0")
        inputs = inputs or common.random_inputs(session, args)
        # Ingot chooses its own values where the model says all about them; sizes and indices have to be given.
        given = common.is_dynamic(session) or any(value.dtype.kind != "f" for value in inputs.values())
        given = given and not args.no_inputs
        with tempfile.TemporaryDirectory() as scratch:
            arguments = common.save_tensors(inputs, pathlib.Path(scratch), "input") if given else []
            for _ in range(args.rounds):
                session = session or common.open_session(model, args.threads)
                ort = time_ort(session, inputs, args)
                session = None  # its threads must not spin while ingot is timed
                row["ort_ms"] = min(ort, row["ort_ms"] or ort)
                ingot = time_ingot(model, arguments, args)
                if ingot is None:
                    break
                row["ingot_ms"] = min(ingot, row["ingot_ms"] or ingot)
    except Exception as error:  # onnxruntime's exceptions share no better base
        print(f"onnxruntime cannot run {model}: {error}", file=sys.stderr)
    return row


def print_row(row):
    ratio = row["ort_ms"] / row["ingot_ms"] if row["ort_ms"] and row["ingot_ms"] else None
    cells = [f"{row[key]:.3f}" if row[key] is not None else "failed" for key in ("ort_ms", "ingot_ms")]
    print(f"{row['model']:<32} {cells[0]:>12} {cells[1]:>12} {f'{ratio:.2f}x' if ratio else '-':>10}", flush=True)
    return ratio


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    common.add_input_options(parser)
    parser.add_argument("--threads", type=int, default=2, help="ONNX Runtime's intra-op threads (default 2)")
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--ingot", type=pathlib.Path, default=common.DEFAULT_INGOT)
    parser.add_argument("--ingot-args", default="", metavar="ARGS", help="more arguments for ingot bench, in one word")
    parser.add_argument("--no-inputs", action="store_true", help="never hand --input to ingot bench")
    parser.add_argument("--timeout", type=float, default=600, metavar="SECONDS")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the rows here as well")
    return parser.parse_args()


def main():
    args = parse_arguments()
    print(f"{'model':<32} {'ort ms':>12} {'ingot ms':>12} {'ort/ingot':>10}", flush=True)
    rows, ratios = [], []
    for path in args.models:
        model = find_model(path)
        if model is None:
            print(f"not a model, nor a folder with one: {path}", file=sys.stderr)
            continue
        rows.append(measure(model, args))
        ratios.append(print_row(rows[-1]))
    good = [r for r in ratios if r]
    if good:
        mean = math.exp(sum(map(math.log, good)) / len(good))
        print(f"{'geometric mean of ' + str(len(good)):<32} {'':>12} {'':>12} {f'{mean:.2f}x':>10}")
    print("above 1x Ingot is the faster one")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if good and len(good) == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
