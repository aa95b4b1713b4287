"""Compares exported models with ONNX Runtime: seeded weights and inputs, batch 1 and 3, every output.

    python tests/oracle/exports.py ../shared/exports --scratch /tmp/exports
    python tests/oracle/exports.py exports --scratch /tmp/exports --references references --device cuda:0 --jobs 16

Each graph gets its weights from make_weights.py beside it; they are deleted again after the comparison. A graph is ok
when the relative error in the Frobenius norm of every output is below the tolerance at every batch size. What ONNX
Runtime gives is kept below --references and made where it is missing: a machine without it compares with what another
one recorded. A graph that this machine cannot hold (--memory) is skipped, and said so. Exits with 1 if one is not ok.
"""

import argparse
import concurrent.futures
import csv
import pathlib
import shutil
import subprocess
import sys
import zlib

import numpy as np
import onnx

import ort_common as common
from compare_ort import relative_error

# Of an output with more elements, that many seeded ones are kept, and the norm of all.
KEPT_ELEMENTS = 1 << 16


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("exports", type=pathlib.Path, help="the folder with make_weights.py")
    parser.add_argument("--only", default="", help="graphs whose path has this text")
    parser.add_argument("--scratch", type=pathlib.Path, required=True, help="where weights are written")
    parser.add_argument("--references", type=pathlib.Path, help="what ONNX Runtime gave (default: SCRATCH/references)")
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 3])
    parser.add_argument("--length", type=int, default=32, help="of other dynamic dimensions")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--option", action="append", default=[], metavar="OPTION", help="a further option of ingot run")
    parser.add_argument("--tolerance", type=float, default=1e-4)
    parser.add_argument("--jobs", type=int, default=1, help="graphs at a time")
    parser.add_argument("--ingot", type=pathlib.Path, default=common.DEFAULT_INGOT)
    parser.add_argument("--memory", type=float, default=0, metavar="GIB",
                        help="skip graphs that need more (default: what is free)")
    args = parser.parse_args()
    args.exports = args.exports.resolve()
    args.references = args.references or args.scratch / "references"
    return args


def free_gib():
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable"):
            return int(line.split()[1]) / 2**20
    return float("inf")


def seeded_inputs(model, batch, args):
    """A value for each input; a symbol in front of one is the batch, others have the given length."""
    graph = onnx.load(model, load_external_data=False).graph
    stored = {tensor.name for tensor in graph.initializer}
    infos = [info for info in graph.input if info.name not in stored]
    sizes = {}
    for info in infos:
        for position, dim in enumerate(info.type.tensor_type.shape.dim):
            if dim.dim_param:
                sizes[dim.dim_param] = batch if position == 0 else sizes.get(dim.dim_param, args.length)
    described = []
    for info in infos:
        tensor = info.type.tensor_type
        shape = [sizes.get(d.dim_param, d.dim_value) for d in tensor.shape.dim]
        described.append((info.name, onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type), shape))
    return common.seeded_values(described, args.seed, int_high=100)


def kept(value, seed):
    """What a reference keeps of an output: all elements, or seeded ones."""
    flat = np.ravel(value)
    if flat.size <= KEPT_ELEMENTS:
        return flat
    return flat[np.sort(np.random.default_rng(seed).integers(0, flat.size, KEPT_ELEMENTS))]


def norm(value):
    return np.linalg.norm(np.ravel(value).astype(np.float64))


def load_reference(path, key):
    if not path.exists():
        return None
    with np.load(path) as file:
        return dict(file) if file["key"] == key else None


def make_reference(path, key, model, inputs, seed):
    session = common.open_session(model, optimise=False)
    names = [o.name for o in session.get_outputs()]
    reference = {"key": key, "names": np.array(names)}
    for index, value in enumerate(session.run(names, inputs)):
        reference |= {f"shape{index}": np.array(value.shape, np.int64), f"norm{index}": norm(value)}
        reference[f"kept{index}"] = kept(value, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **reference)
    return reference


def compare_output(path, reference, index, args):
    """A line about one output, and whether it is good enough."""
    expected = reference[f"kept{index}"]
    shape = tuple(reference[f"shape{index}"].tolist())
    if not path.exists():
        return f"ingot wrote no {path.name}", False
    actual = np.load(path)
    if actual.shape != shape or actual.dtype != expected.dtype:
        return f"{actual.dtype}{actual.shape}, expected {expected.dtype}{shape}", False
    error = relative_error(kept(actual, args.seed), expected)
    whole = float(reference[f"norm{index}"])
    # Elements that the reference does not keep are held to its norm, which an output within the tolerance meets, too.
    of_norm = abs(norm(actual) - whole) / whole if whole > 0 else norm(actual)
    good = max(error, of_norm) < args.tolerance
    return f"{expected.dtype}{shape} relative error {error:.2e}, of the norm {of_norm:.2e}", good


def compare_batch(name, model, batch, args):
    """Lines about the graph at one batch size, and whether all is well."""
    inputs = seeded_inputs(model, batch, args)
    key = zlib.crc32(f"{batch} {args.length} {args.seed}".encode(), zlib.crc32(model.read_bytes()))
    for made_by in (args.exports / "make_weights.py", model.parents[1] / "weightless" / "graph" / "weights.tsv"):
        key = zlib.crc32(made_by.read_bytes(), key)
    path = args.references / f"{name.replace('/', '_')}_{batch}.npz"
    reference = load_reference(path, key)
    if reference is None:
        try:
            reference = make_reference(path, key, model, inputs, args.seed)
        except Exception as error:  # onnxruntime's exceptions share no better base, and it may not be there
            return [f"no reference: {error}"], False
    outputs = model.parent / f"outputs_{batch}"
    outputs.mkdir()
    arguments = common.save_tensors(inputs, model.parent / f"inputs_{batch}", "input")
    command = [args.ingot, "run", model, *arguments, "--output-dir", outputs, "--device", args.device, *args.option]
    if common.run_ingot(command, 1800) is None:
        return ["ingot failed"], False
    results = [compare_output(outputs / f"{common.file_name(str(output))}.npy", reference, index, args)
               for index, output in enumerate(reference["names"])]
    return [line for line, _ in results], all(good for _, good in results)


def write_weights(graph, args, folder):
    """Copies the graph into the folder, with weights. The model's path."""
    shutil.rmtree(folder, ignore_errors=True)
    template = shutil.copytree(graph.parent, folder / "weightless" / "graph")
    rows = csv.DictReader((graph.parent / "weights.tsv").read_text().splitlines(), delimiter="\t")
    with open(template / "weights.tsv", "w") as file:
        writer = csv.DictWriter(file, rows.fieldnames, delimiter="\t")
        writer.writeheader()
        for row in rows:
            # A head that waits for training multiplies by zeros, and would hide all that goes before it.
            if row["dims"].count("x") == 1 and float(row["min"]) == float(row["max"]) == 0:
                row |= {"std": 0.02, "min": -0.1, "max": 0.1}
            writer.writerow(row)
    fill = [sys.executable, args.exports / "make_weights.py", folder, template]
    subprocess.run(fill, check=True, capture_output=True)
    return folder / "graph" / "model.onnx"


def compare_graph(graph, args):
    """The verdict on one graph: ok, FAIL or skipped. Prints it with what each batch size gave."""
    name = str(graph.parent.relative_to(args.exports))
    folder = args.scratch / name.replace("/", "_")
    model = write_weights(graph, args, folder)
    # Weights in the file's mapping, in ONNX Runtime and in Ingot, and as much again while compiling.
    needed = 4 * (model.parent / "weights.bin").stat().st_size / 2**30
    lines, verdict = [f"needs {needed:.1f} GiB of memory"], "skipped"
    if needed <= (args.memory or free_gib()):
        lines, good = [], True
        for batch in args.batch:
            of_batch, batch_good = compare_batch(name, model, batch, args)
            lines += [f"batch {batch}: {line}" for line in of_batch]
            good &= batch_good
        verdict = "ok" if good else "FAIL"
    shutil.rmtree(folder)
    print("\n  ".join([f"{verdict} {name}", *lines]), flush=True)
    return verdict


def main():
    args = parse_arguments()
    graphs = sorted(args.exports.glob("*/*/model.onnx"))
    graphs = [graph for graph in graphs if args.only in str(graph.parent.relative_to(args.exports))]
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        verdicts = list(pool.map(lambda graph: compare_graph(graph, args), graphs))
    print(", ".join(f"{verdicts.count(kind)} {kind}" for kind in ("ok", "FAIL", "skipped")))
    return 1 if "FAIL" in verdicts or not verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
