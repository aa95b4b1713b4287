"""Runs one ONNX model in ONNX Runtime and in Ingot on the same seeded inputs and compares every output.

    python tests/oracle/compare_ort.py model.onnx --dim N=4 --device cpu --tolerance 1e-5

Prints the relative error of each output, |ingot - reference| / |reference| in the Frobenius norm. Exits with 1 if an
output is above the tolerance, missing, or of another shape or type, and with 2 if the reference itself cannot run.
ONNX Runtime runs without its own graph optimisations, so that two sets of fusions do not hide one another.
"""

import argparse
import pathlib
import sys
import tempfile

import numpy as np

import ort_common as common


def relative_error(actual, expected):
    """Relative error in the Frobenius norm; infinite where the two disagree on which values are finite."""
    actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(expected)
    if not np.array_equal(actual[~finite], expected[~finite], equal_nan=True) or not np.isfinite(actual[finite]).all():
        return np.inf
    difference = np.linalg.norm(actual[finite] - expected[finite])
    norm = np.linalg.norm(expected[finite])
    return difference / norm if norm > 0 else difference


def compare(name, path, expected, tolerance):
    """Prints one line about an output; true if it is good enough."""
    if not path.exists():
        print(f"FAIL {name}: ingot wrote no {path.name}")
        return False
    actual = np.load(path)
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        print(f"FAIL {name}: {actual.dtype}{list(actual.shape)}, expected {expected.dtype}{list(expected.shape)}")
        return False
    error = relative_error(actual, expected)
    good = error <= tolerance
    print(f"{'ok  ' if good else 'FAIL'} {name}: {expected.dtype}{list(expected.shape)} relative error {error:.2e}")
    return good


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=pathlib.Path)
    common.add_input_options(parser)
    parser.add_argument("--test-data", type=pathlib.Path, metavar="DIR", help="take inputs from a test_data_set")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tolerance", type=float, default=1e-4)
    parser.add_argument("--ingot", type=pathlib.Path, default=common.DEFAULT_INGOT)
    parser.add_argument("--ingot-model", type=pathlib.Path, help="what ingot runs, e.g. a .ingot (default: the model)")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR", help="keep inputs, outputs and references here")
    parser.add_argument("--timeout", type=float, default=600, metavar="SECONDS")
    return parser.parse_args()


def run_reference(args):
    """The inputs and ONNX Runtime's outputs, each a dict from name to array."""
    session = common.open_session(args.model, optimise=False)
    inputs = common.test_data_inputs(session, args.test_data) if args.test_data else common.random_inputs(session, args)
    if inputs is None:
        common.fail(f"no tensors to feed in {args.test_data}")
    names = [o.name for o in session.get_outputs()]
    return inputs, dict(zip(names, session.run(names, inputs)))


def main():
    args = parse_arguments()
    try:
        inputs, expected = run_reference(args)
    except Exception as error:  # onnxruntime's exceptions share no better base
        print(f"onnxruntime cannot run {args.model}: {error}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep or pathlib.Path(scratch)
        outputs = folder / "ingot"
        outputs.mkdir(parents=True, exist_ok=True)
        for name in expected:
            (outputs / f"{common.file_name(name)}.npy").unlink(missing_ok=True)
        arguments = common.save_tensors(inputs, folder / "inputs", "input")
        if args.keep:
            common.save_tensors(expected, folder / "reference", "output")
        command = [args.ingot, "run", args.ingot_model or args.model, *arguments]
        command += ["--output-dir", outputs, "--device", args.device]
        if common.run_ingot(command, args.timeout) is None:
            return 1
        verdicts = []
        for name, value in expected.items():
            if not isinstance(value, np.ndarray):
                print(f"skip {name}: not a tensor")
                continue
            verdicts.append(compare(name, outputs / f"{common.file_name(name)}.npy", value, args.tolerance))
    return 0 if all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
