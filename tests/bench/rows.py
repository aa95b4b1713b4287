"""Rows of kernels.py: one operation with what is fused into it, as an ONNX model, as calls of PyTorch, and measured.

A row has sets of values: inputs and weights of their own for each, so many that they and the results are more than
the cache (L2) holds; then every call finds its data in memory, as far as MOST_SETS reaches. The model has the
operation once for each set. Values are drawn from the row's name, so that the model's weights and the peer's are the
same without being stored.
"""

import concurrent.futures
import dataclasses
import os
import subprocess
import zlib

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper

import timing

FOOTPRINT = 150e6  # bytes of all sets: the H200's L2 holds 60 MB
MOST_SETS = 24
OURS = "Ingot"
TORCH = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "tf32": torch.float32,
    "fp32": torch.float32,
    "int8": torch.int8,
    "fp8": torch.float8_e4m3fn,
}
ONNX = {
    torch.float16: TensorProto.FLOAT16,
    torch.bfloat16: TensorProto.BFLOAT16,
    torch.float32: TensorProto.FLOAT,
    torch.int8: TensorProto.INT8,
    torch.int32: TensorProto.INT32,
    torch.float8_e4m3fn: TensorProto.FLOAT8E4M3FN,
}


@dataclasses.dataclass
class Spec:
    """A tensor of normal values times `scale`, or of bytes of every value."""

    shape: tuple
    scale: float = 1.0


@dataclasses.dataclass
class Candidate:
    """A call of PyTorch on a set's values. counts: a peer; else it is shown beside them. tf32: allowed; None: as the
    kind says."""

    name: str
    call: object
    counts: bool = True
    tf32: object = None


@dataclasses.dataclass
class Row:
    section: str
    name: str
    kind: str
    flops: float  # of one call
    moved: float  # bytes of one call: everything in and out once
    inputs: dict  # name: Spec
    weights: dict  # name: Spec
    nodes: object  # (dict from name to the set's ONNX name, list of names of results) -> ONNX nodes
    candidates: list
    reference: object  # (dict of tensors of f64) -> result or tuple of results
    outputs: int = 1
    output_type: object = None  # PyTorch's; None: the kind's
    constants: dict = dataclasses.field(default_factory=dict)  # name: NumPy array, for all sets
    prepare: object = None  # (dict) -> dict: the peer's own form of the values, made once
    summed: bool = (
        False  # the model's only result is the sum of all sets', each a small part: see memory_rows.py, `probe`
    )
    exact: bool = False  # the error is the share of results that differ from the reference
    sets: int = 0
    bars: dict = dataclasses.field(default_factory=dict)  # what to compare with in fp16: microseconds
    count: int = 1  # times that a network has it

    def __post_init__(self):
        self.bars = {
            n: us for n, us in self.bars.items() if us and self.kind == "fp16"
        }  # hand-made kernels are of fp16
        self.sets = self.sets or max(1, min(MOST_SETS, 1 + int(FOOTPRINT // self.moved)))

    def results(self, i):
        """Names of set i's results."""
        return [f"{name}{i}" for name in "yz"[: self.outputs]]

    def values(self, device, inputs=True):
        """A dict of tensors for each set; the weights alone do not depend on whether inputs are drawn."""
        dtype = TORCH[self.kind]
        sets = []
        for which, specs in enumerate([self.weights, self.inputs if inputs else {}]):
            generator = torch.Generator(device=device).manual_seed(2 * zlib.crc32(self.name.encode()) + which)
            for i in range(self.sets):
                if which == 0:
                    sets.append({})
                for name, spec in specs.items():
                    if dtype == torch.int8:
                        sets[i][name] = torch.randint(
                            -128, 128, spec.shape, generator=generator, device=device, dtype=dtype
                        )
                    else:
                        sets[i][name] = (torch.randn(spec.shape, generator=generator, device=device) * spec.scale).to(
                            dtype
                        )
        return sets


def onnx_tensor(name, tensor):
    flat = tensor.contiguous().cpu()
    bits = {torch.bfloat16: torch.int16, torch.float8_e4m3fn: torch.uint8}  # NumPy does not know those
    data = flat.view(bits.get(flat.dtype, flat.dtype)).numpy().tobytes()
    return helper.make_tensor(name, ONNX[tensor.dtype], list(tensor.shape), data, raw=True)


def write_model(row, path, device):
    dtype, nodes, inputs, results, tensors = TORCH[row.kind], [], [], [], []
    for name, array in row.constants.items():
        tensors.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    for i, weights in enumerate(row.values(device, inputs=False)):
        names = {n: f"{n}{i}" for n in [*row.inputs, *row.weights]} | {n: n for n in row.constants}
        inputs += [helper.make_tensor_value_info(names[n], ONNX[dtype], list(s.shape)) for n, s in row.inputs.items()]
        tensors += [onnx_tensor(names[n], w) for n, w in weights.items()]
        results += row.results(i)
        nodes += row.nodes(names, row.results(i))
    if row.summed:
        nodes.append(helper.make_node("Sum", results, ["sum"]))
        results = ["sum"]
    outputs = [helper.make_empty_tensor_value_info(r) for r in results]
    for output in outputs:
        output.type.tensor_type.elem_type = ONNX[row.output_type or dtype]
    graph = helper.make_graph(nodes, "row", inputs, outputs, tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11), path)


def compile_model(model, file, kind, args):
    """None, or why it failed."""
    command = [
        args.ingot,
        "compile",
        model,
        "-o",
        file,
        "--target",
        args.target,
        "--streams",
        "1",
        "--no-ptx",
        "--no-refit",
    ]
    environment = dict(os.environ, **({"INGOT_TILE": args.tile} if args.tile else {}))
    try:
        done = subprocess.run(
            command + (["--precision", "tf32"] if kind == "tf32" else []),
            capture_output=True,
            text=True,
            timeout=args.compile_seconds,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"compiling took more than {args.compile_seconds} s"
    finally:
        os.remove(model)
    return done.stderr.strip().split("\n")[0] if done.returncode else None


def compile_rows(rows, args):
    """A file for each row, or the reason why there is none: (path, reason). Compilers run beside each other."""
    device, found = args.device.split(":")[0], []
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for i, row in enumerate(rows):
            model, file = f"{args.out}/row{i}.onnx", f"{args.out}/row{i}.ingot"
            write_model(row, model, device)
            found.append((file, pool.submit(compile_model, model, file, row.kind, args)))
    return [(file, future.result()) for file, future in found]


def flat(value):
    return list(value) if isinstance(value, (tuple, list)) else [value]


def difference_of(row, got, want):
    """The relative error (Frobenius), or the share of results that differ. Of f8 by the sum of sizes: a value that is
    off by a thousandth of a step before it is rounded is off by a step in one of a thousand cases. Such steps add up to
    what the values were off; their squares, to a thousand times as much."""
    if row.exact:
        return (got.double() != want.double()).double().mean().item()
    order = 1 if got.dtype == torch.float8_e4m3fn else 2
    got, want = got.double(), want.double()
    size = lambda t: torch.linalg.vector_norm(t, order)
    return (size(got - want) / size(want)).item()


def error_of(row, sets, outputs):
    """The largest error (`difference_of`) of the first and the last set, against f64."""
    if row.summed:
        pairs = [(outputs["sum"], sum(reference_of(row, values)[0] for values in sets))]
    else:
        pairs = [
            (outputs[name], want)
            for i in {0, len(sets) - 1}
            for name, want in zip(row.results(i), reference_of(row, sets[i]))
        ]
    worst = 0.0
    for got, want in pairs:
        error = difference_of(row, got, want)
        worst = max(worst, error) if error == error else float("nan")  # a NaN stays
    return worst


def reference_of(row, values):
    with timing.tf32_allowed(False):
        return flat(row.reference({n: t.double() for n, t in values.items()}))


class Measurement:
    """One row with its session, on one device."""

    def __init__(self, row, args, runtime):
        self.row, self.args, self.runtime, self.failures, self.samples = row, args, runtime, {}, {}
        self.device = args.device.split(":")[0]
        self.sets = row.values(self.device)
        self.peer_sets = [row.prepare(dict(s)) for s in self.sets] if row.prepare else self.sets
        self.outputs, self.session = None, None

    def attempt(self, name, make):
        """Adds a candidate; a failure is kept as its text."""
        try:
            self.samples[name] = timing.sample_of(make(), self.device)
        except (RuntimeError, AttributeError, NotImplementedError, TypeError) as e:
            self.failures[name] = (str(e).strip().split("\n")[0] or repr(e))[:160]

    def ours(self, file):
        """One pass of Ingot: all sets are one model."""
        self.session = self.runtime.session(file, self.args.device, recordings=False)
        row, sets = self.row, self.sets
        at = {f"{n}{i}": s[n] for i, s in enumerate(sets) for n in row.inputs}
        given = [at[n] for n in self.session.inputs]
        self.outputs = {}
        for name, (dims, kind) in zip(self.session.outputs, self.session.output_types(given)):
            dtype = getattr(torch, kind)
            poison = float("nan") if dtype.is_floating_point else 85
            self.outputs[name] = torch.full(dims, poison, dtype=dtype, device=self.device)
        wanted = list(self.outputs.values())
        if self.device == "cpu":
            enqueue = self.session.bind(given, wanted)
            return lambda: (enqueue(), self.session.synchronize())
        return self.session.bind(given, wanted, lambda: torch.cuda.current_stream().cuda_stream)

    def peer(self, candidate):
        def one_pass():
            with timing.tf32_allowed(self.row.kind == "tf32" if candidate.tf32 is None else candidate.tf32):
                return [candidate.call(s) for s in self.peer_sets]  # all results live: each has a place of its own

        return one_pass

    def run(self, file, problem):
        """What is known of the row, for the JSON file. Times are microseconds of one call."""
        row, args = self.row, self.args
        if problem:
            self.failures[OURS] = problem
        else:
            self.attempt(OURS, lambda: self.ours(file))
        for candidate in row.candidates:
            self.attempt(candidate.name, lambda c=candidate: self.peer(c))
        heavy = row.flops > 2e9 or row.moved > 50e6
        us = lambda times: {n: 1e3 * t / row.sets for n, t in times.items()}
        found = dict(
            section=row.section,
            name=row.name,
            kind=row.kind,
            sets=row.sets,
            flops=row.flops,
            moved=row.moved,
            count=row.count,
            bars=row.bars,
            peers=[c.name for c in row.candidates if c.counts],
            failures=self.failures,
        )
        if self.samples and "burst" in args.modes:
            found["burst"] = us(timing.burst(self.samples, args.idle if heavy else args.idle / 4, args.rounds))
        if self.samples and "sustained" in args.modes and self.device != "cpu":
            found["sustained"] = us(timing.sustained(self.samples, args.sustain * len(self.samples)))
        if OURS in self.samples:
            try:
                found["error"] = error_of(row, self.sets, self.outputs)
            except RuntimeError as e:  # f64 needs memory that may not be there
                self.failures["reference"] = str(e)[:160]
        if self.session:
            self.session.free()
        return found
