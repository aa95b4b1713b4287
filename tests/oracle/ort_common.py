"""What the scripts that compare Ingot with ONNX Runtime share: input values, sessions, and calls of the ingot binary.

Needs the Python packages onnx and numpy, and onnxruntime only where a session is opened: recorded references do without.
"""

import pathlib
import re
import subprocess
import sys

import numpy as np
import onnx
from onnx import numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEFAULT_INGOT = ROOT / "build" / "release" / "bin" / "ingot"

NUMPY_TYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int8)": np.int8,
    "tensor(int16)": np.int16,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
    "tensor(uint8)": np.uint8,
    "tensor(uint16)": np.uint16,
    "tensor(uint32)": np.uint32,
    "tensor(uint64)": np.uint64,
    "tensor(bool)": np.bool_,
}


def fail(message):
    raise SystemExit(f"error: {message}")


def add_input_options(parser):
    """The options that decide shapes and values, the same in every script."""
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=N", help="size of a symbolic dimension")
    parser.add_argument("--default-dim", type=int, default=1, metavar="N", help="for those not given (default 1)")
    parser.add_argument("--int-high", type=int, default=100, metavar="N", help="integers are drawn from [0, N)")


def parse_dims(items):
    dims = {}
    for item in items:
        name, equals, size = item.rpartition("=")
        if not equals or not size.isdigit():
            fail(f"--dim takes NAME=N, not '{item}'")
        dims[name] = int(size)
    return dims


def open_session(path, threads=0, optimise=True):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimise else level.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def is_dynamic(session):
    return any(not isinstance(d, int) for i in session.get_inputs() for d in i.shape)


def random_inputs(session, args):
    """Seeded values for each input of a session, of the options' shapes."""
    dims = parse_dims(args.dim)
    described = []
    for info in session.get_inputs():
        if info.type not in NUMPY_TYPES:
            fail(f"input '{info.name}' is {info.type}; numpy has no such type")
        shape = [d if isinstance(d, int) else dims.get(d, args.default_dim) for d in info.shape]
        described.append((info.name, np.dtype(NUMPY_TYPES[info.type]), shape))
    return seeded_values(described, args.seed, args.int_high)


def seeded_values(described, seed, int_high):
    """Values for (name, type, shape) in order: floats are standard normal, integers in [0, int_high), bools fair."""
    rng = np.random.default_rng(seed)
    values = {}
    for name, dtype, shape in described:
        if dtype.kind == "f":
            value = rng.standard_normal(shape).astype(dtype)
        elif dtype.kind == "b":
            value = rng.integers(0, 2, shape).astype(dtype)
        else:
            value = rng.integers(0, min(int_high, np.iinfo(dtype).max), shape).astype(dtype)
        values[name] = np.asarray(value)
    return values


def test_data_inputs(session, folder):
    """The inputs of an ONNX test_data_set folder, or None where there is none or one holds more than tensors."""
    files = sorted(pathlib.Path(folder).glob("input_*.pb"), key=lambda f: int(re.sub(r"\D", "", f.stem)))
    infos = session.get_inputs()
    if not files or len(files) > len(infos) or any(not i.type.startswith("tensor") for i in infos):
        return None
    values = {}
    for info, file in zip(infos, files):
        tensor = onnx.TensorProto.FromString(file.read_bytes())
        values[tensor.name if any(i.name == tensor.name for i in infos) else info.name] = numpy_helper.to_array(tensor)
    return values


def file_name(tensor_name):
    """The name under which `ingot run --output-dir` stores a tensor, without the .npy."""
    return re.sub(r"[^0-9A-Za-z]", "_", tensor_name)


def save_tensors(values, folder, prefix):
    """Writes each tensor as PREFIX_N_NAME.npy and returns the arguments that would hand them to ingot as inputs."""
    folder.mkdir(parents=True, exist_ok=True)
    arguments = []
    for index, (name, value) in enumerate(values.items()):
        path = folder / f"{prefix}_{index}_{file_name(name)}.npy"
        np.save(path, value)
        arguments += ["--input", f"{name}={path}"]
    return arguments


def run_ingot(command, timeout):
    """Runs ingot; returns its standard output, or None after printing why it failed."""
    try:
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=timeout, check=False)
    except FileNotFoundError:
        fail(f"there is no {command[0]}; build it, or give --ingot")
    except subprocess.TimeoutExpired:
        print(f"ingot took longer than {timeout} s: {' '.join(map(str, command))}", file=sys.stderr)
        return None
    if done.returncode != 0:
        print(f"ingot exited with {done.returncode}: {' '.join(map(str, command))}", file=sys.stderr)
        print((done.stdout[-1000:] + done.stderr[-3000:]).strip(), file=sys.stderr)
        return None
    return done.stdout
