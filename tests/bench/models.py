#!/usr/bin/env python3
"""Whole models beside PyTorch, in one run: eager, eager in a CUDA graph, torch.compile, and Ingot on the exported
graph.

usage: models.py INGOT LIBRARY OUTDIR [--models a,b] [--batches 1,64] [--types fp16,fp32,tf32,bf16] [--compile]
                 [--profile] [--budget SECONDS] [--json FILE]
       models.py INGOT LIBRARY OUTDIR --export-only [--models a,b]

Each model is built with random weights, exported in fp32 by torch.onnx, and run on the same random input by all;
Ingot gets the type by --precision, PyTorch by converting the model (channels last for images of 16 bits; tf32 is
allowed in the rows of tf32 and of 16 bits, and not in those of fp32, which keep the accuracy of f32 on both sides).

A model has a process of its own, which prepares everything, torch.compile in mode "reduce-overhead" included, beside
the others'; then one after the other measures, its candidates by turns (timing.py). One that is not ready in
--prepare-seconds is ended and started again without torch.compile. Inputs and results stay on the device. Errors are
relative (Frobenius), of Ingot's and of PyTorch's results against PyTorch's in fp32. Exits with 1 if a row of Ingot
failed or is wrong.
"""

import argparse
import copy
import datetime
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import torch

import model_zoo
import timing
from ingot_runtime import Runtime
from kernels import print_means, ratio, target_of, write_json
from rows import OURS

TORCH = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32, "tf32": torch.float32}
EAGER, GRAPH, COMPILE = "eager", "graph", "torch.compile"
# Ingot may be so many times as far from fp32 as PyTorch is in the same type; random deep networks amplify rounding
WORSE_THAN_PEER = 4
# Where the peer is the reference: products that are right to 5e-7 are 40 to 150 times that behind the norms of image networks.
LEAST_ERROR = 2.5e-5
READY, GO, DONE = "ready", "go", "done"


# ---- the process of one model ----------------------------------------------------------------------------------------


class Model:
    """One model: the files, PyTorch's forms of it, and what is measured."""

    def __init__(self, name, args):
        self.name, self.args, self.device = name, args, args.device.split(":")[0]
        if self.device != "cpu":
            torch.cuda.set_stream(torch.cuda.Stream())  # the default one has no number that Ingot could be given
        model, self.make = model_zoo.build(name, self.device)
        self.reference = model.eval().to(self.device)
        self.path = f"{args.out}/{name}.onnx"
        if not os.path.exists(self.path):
            model_zoo.export(self.reference, self.make(2).to(self.device), self.path)

    def file(self, kind):
        return f"{self.args.out}/{self.name}-{kind}.ingot"

    def start_compilers(self):
        """Ingot's, one for each type."""
        commands = {
            kind: [
                self.args.ingot,
                "compile",
                self.path,
                "-o",
                self.file(kind),
                "--target",
                self.args.target,
                "--no-ptx",
                "--precision",
                kind,
            ]
            for kind in self.args.types.split(",")
        }
        return {
            kind: subprocess.Popen(c, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            for kind, c in commands.items()
        }

    def prepare(self):
        """What takes time before anything is measured: rows of (kind, batch, input, peer's input, candidates,
        failures)."""
        compilers, self.rows = self.start_compilers(), []
        for kind in self.args.types.split(","):
            model = copy.deepcopy(self.reference).to(TORCH[kind])
            fast = torch.compile(model, mode="reduce-overhead", dynamic=False) if self.args.compile else None
            for batch in map(int, self.args.batches.split(",")):
                x = self.make(batch).to(self.device)
                y = x.to(TORCH[kind]) if x.is_floating_point() else x
                if y.dim() == 4 and TORCH[kind] != torch.float32:
                    model, y = (
                        model.to(memory_format=torch.channels_last),
                        y.contiguous(memory_format=torch.channels_last),
                    )
                row = dict(kind=kind, batch=batch, x=x, y=y, model=model, fast=fast, failures={})
                with timing.tf32_allowed(kind != "fp32"):
                    self.warm_up(row)
                self.rows.append(row)
        self.problems = {
            kind: c.communicate()[1].strip().split("\n")[0] if c.wait() else None for kind, c in compilers.items()
        }

    def warm_up(self, row):
        row["model"](row["y"])
        if row["fast"] is not None:
            try:
                for _ in range(4):
                    row["fast"](row["y"])
            except Exception as e:  # Inductor's exceptions share no base
                row["failures"][COMPILE], row["fast"] = repr(e)[:160], None

    def samples(self, row, session):
        """Candidates by name; all of them ran. Ingot's result is in row["ours"]."""
        model, fast, y = row["model"], row["fast"], row["y"]
        on_cpu, found = self.device == "cpu", {}
        ((dims, kind),) = session.output_types([row["x"]]) if session else [((), "float32")]
        if session:
            row["ours"] = torch.full(dims, float("nan"), dtype=getattr(torch, kind), device=self.device)
            stream = None if on_cpu else lambda: torch.cuda.current_stream().cuda_stream
            enqueue = session.bind([row["x"]], [row["ours"]], stream)
            run = (lambda: (enqueue(), session.synchronize())) if on_cpu else enqueue
            for _ in range(3):  # the session records its graph
                run()
            found[OURS] = timing.CpuSample(run) if on_cpu else timing.GpuSample(run)
        if on_cpu:
            found[EAGER] = timing.CpuSample(lambda: model(y))
        else:
            found[EAGER] = timing.GpuSample(lambda: model(y))
            timing.warmed_up(lambda: model(y), 3)
            found[GRAPH] = timing.capture(lambda: model(y), 1)
        if fast is not None:
            found[COMPILE] = timing.CpuSample(lambda: fast(y)) if on_cpu else timing.GpuSample(lambda: fast(y))
        return found

    def measure(self, row, runtime):
        kind, batch, args = row["kind"], row["batch"], self.args
        session, failures = None, row["failures"]
        try:
            if self.problems[kind]:
                raise RuntimeError(self.problems[kind])
            session = runtime.session(self.file(kind), args.device)
            found = self.samples(row, session)
        except RuntimeError as e:
            failures[OURS] = str(e)[:160]
            found = self.samples(row, None)
        result = dict(
            section="models",
            name=f"{self.name} {kind} b{batch}",
            model=self.name,
            kind=kind,
            batch=batch,
            failures=failures,
            peers=[EAGER, GRAPH, COMPILE],
            launches=self.launches(kind),
        )
        result["burst"] = timing.burst(found, args.idle, args.rounds)
        if self.device != "cpu":
            steady = {n: s for n, s in found.items() if n != EAGER}  # whose host is too slow to keep the card busy
            result["sustained"] = timing.sustained(steady, args.sustain * len(steady))
        result.update(self.errors(row, OURS in found))
        if session:
            session.free()
        return result

    def errors(self, row, ours):
        with timing.tf32_allowed(False):
            want = self.reference(row["x"]).double()
        relative = lambda got: ((got.double() - want).norm() / want.norm()).item()
        return dict(peer_error=relative(row["model"](row["y"]))) | (dict(error=relative(row["ours"])) if ours else {})

    def launches(self, kind):
        if self.problems[kind]:
            return None
        text = subprocess.run(
            [self.args.ingot, "inspect", self.file(kind)], capture_output=True, text=True, check=False
        ).stdout
        found = re.search(r"in (\d+) launches", text)
        return int(found[1]) if found else None


def one_model(args):
    """The child's side: says READY, waits for GO, and prints a JSON line for each row. All else goes to standard
    error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    model = Model(args.child, args)
    model.prepare()
    print(READY, file=answers, flush=True)
    if sys.stdin.readline().strip() != GO:
        return
    runtime = Runtime(args.library)
    for row in model.rows:
        with timing.tf32_allowed(row["kind"] != "fp32"):
            print(json.dumps(model.measure(row, runtime)), file=answers, flush=True)
    print(DONE, file=answers, flush=True)


# ---- the parent ------------------------------------------------------------------------------------------------------


class Child:
    """A process for one model. `attempt` ends it, and what it has started, when it is silent for too long."""

    def __init__(self, name, args):
        self.name, self.args, self.note = name, args, None
        self.start(args.compile)

    def start(self, compiled):
        words = (
            [w for w in sys.argv[1:] if w != "--compile"] + ["--child", self.name] + (["--compile"] if compiled else [])
        )
        environment = dict(os.environ, TORCHINDUCTOR_COMPILE_THREADS="2")
        self.started = time.monotonic()
        self.log = open(f"{self.args.out}/{self.name}.log", "a", encoding="utf-8")
        self.process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            start_new_session=True,
            env=environment,
        )

    def line(self, seconds):
        """The next line, or "" when the process has ended or was ended because it took longer."""
        timer = threading.Timer(max(0.1, seconds), self.end)
        timer.start()
        try:
            return self.process.stdout.readline().strip()
        finally:
            timer.cancel()

    def end(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)

    def ready(self):
        """Waits until the model is prepared, at worst without torch.compile."""
        limit = self.args.prepare_seconds
        if self.line(limit - (time.monotonic() - self.started)) == READY:
            return True
        late = time.monotonic() - self.started > limit - 1
        self.note = f"not prepared in {limit:.0f} s" if late else "the process ended while it prepared"
        self.end()
        if not self.args.compile:
            return False
        self.start(False)
        return self.line(limit) == READY

    def rows(self, seconds):
        """What it measures; ends early when the process does."""
        self.process.stdin.write(GO + "\n")
        self.process.stdin.flush()
        end = time.monotonic() + seconds
        while (text := self.line(end - time.monotonic())) and text != DONE:
            row = json.loads(text)
            if self.note:
                row["failures"][COMPILE] = self.note
            yield row
        if text != DONE:
            print(f"{self.name}: the process ended, or took more than {seconds:.0f} s: see {self.log.name}", flush=True)
        self.end()


def profile(row, args):
    """Each kernel's time beside its roofline, in a file of its own, and the sum of the times in the row."""
    file = f"{args.out}/{row['model']}-{row['kind']}.ingot"
    words = [
        args.ingot,
        "bench",
        file,
        "--device",
        args.device,
        "--batch",
        str(row["batch"]),
        "--duration",
        "0.2",
        "--profile",
    ]
    text = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False).stdout
    with open(f"{args.out}/{row['model']}-{row['kind']}-b{row['batch']}.txt", "w", encoding="utf-8") as f:
        f.write(text)
    found = re.search(r"([\d.]+) ms in (\d+) kernels", text)
    if found:
        row["kernels_ms"] = float(found[1])


def print_row(row):
    for mode in ("burst", "sustained"):
        if mode in row:
            times = "  ".join(f"{n} {ms:.3f}" for n, ms in row[mode].items())
            print(
                f"{row['name']:26} {mode:9} {times}  {ratio(row, mode) or float('nan'):.2f}x of the best peer",
                flush=True,
            )
    errors = f"error {row.get('error', float('nan')):.1e}, PyTorch {row['peer_error']:.1e}"
    print(f"{'':26} {errors}, {row['launches']} launches", flush=True)
    for name, why in row["failures"].items():
        print(f"{'':26} {name} failed: {why}", flush=True)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ingot")
    parser.add_argument("library", metavar="LIBRARY", help="libingot_runtime.so")
    parser.add_argument("out", metavar="OUTDIR")
    parser.add_argument("--models", default=",".join(model_zoo.NAMES))
    parser.add_argument("--batches", default="1,64")
    parser.add_argument("--types", default="fp16")
    parser.add_argument("--compile", action="store_true", help="torch.compile as well")
    parser.add_argument("--profile", action="store_true", help="writes OUTDIR/MODEL-TYPE-bBATCH.txt")
    parser.add_argument("--export-only", action="store_true")
    parser.add_argument("--idle", type=float, default=80, help="ms before a sample")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sustain", type=float, default=0.25, help="seconds of each candidate when sustained")
    parser.add_argument(
        "--prepare-seconds", type=float, default=100, help="for building, exporting and compiling one model"
    )
    parser.add_argument("--budget", type=float, default=1e9, help="seconds for all of it")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.target = target_of(args.device)
    return args


def save(found, args):
    if args.json:
        name = "cpu" if args.device == "cpu" else torch.cuda.get_device_name()
        about = dict(what="models", date=datetime.date.today().isoformat(), device=name, torch=torch.__version__)
        write_json(args.json, about | dict(rows=found))


def measure_all(args):
    end, found = time.monotonic() + args.budget, []
    children = [Child(name, args) for name in args.models.split(",")]
    prepared = [child for child in children if child.ready()]
    for child in children:
        if child not in prepared:
            print(f"{child.name}: {child.note}: see {child.log.name}", flush=True)
    for child in prepared:
        if time.monotonic() > end:
            print(f"{child.name}: not measured: out of time", flush=True)
            child.end()
            continue
        for row in child.rows(min(90, end + 10 - time.monotonic())):
            found.append(row)
            print_row(row)
            save(found, args)
    for row in found if args.profile else []:
        if time.monotonic() < end and OURS in row["burst"]:
            profile(row, args)
            save(found, args)
    return found


def main():
    args = parse_arguments()
    os.makedirs(args.out, exist_ok=True)
    torch.set_grad_enabled(False)
    torch.backends.cudnn.benchmark = True
    if args.child:
        return one_model(args)
    if args.export_only:
        for name in args.models.split(","):
            Model(name, args)
        return 0
    found = measure_all(args)
    print_means(found)
    wrong = [
        r["name"] for r in found if not r.get("error", float("nan")) <= WORSE_THAN_PEER * max(r["peer_error"], LEAST_ERROR)
    ]
    missing = len(args.models.split(",")) * len(args.types.split(",")) * len(args.batches.split(",")) - len(found)
    if wrong or missing:
        print(f"{missing} rows missing, {len(wrong)} failed or wrong: {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong or missing else 0


if __name__ == "__main__":
    sys.exit(main())
