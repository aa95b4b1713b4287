"""How the scripts of this folder measure: candidates in a round-robin, on a GPU as CUDA graphs between two events.

A candidate is a function that makes one pass over its sets of inputs. On a GPU its pass is captured, as often as
makes a graph of about GRAPH_MS, and a sample is the time of one replay divided by that number. A kernel that only
waits goes before the first event, so that the host's part of the launch is hidden for all candidates alike.

burst      every sample comes after some idle time, one candidate after the other, in an order that rotates. A card
           that its power limit slows down under load runs at its full clock here, whoever comes first.
sustained  replays of all candidates in turns, back to back, after a time of the same work: at the power limit, shared.

On a CPU a sample is one pass by the wall clock, and there is no sustained mode.
"""

import contextlib
import statistics
import time

import torch

GRAPH_MS = 1.0  # of one sample: short enough to keep the clock, long enough that its ends do not count
MOST_PASSES = 400  # in one graph
WAIT_CYCLES = 400_000  # of the kernel before the first event, about 0.2 ms


@contextlib.contextmanager
def tf32_allowed(allowed):
    """PyTorch's setting for products of f32, and back again."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


class CpuSample:
    """A pass on the CPU."""

    def __init__(self, run):
        self.run, self.passes = run, 1
        run()

    def ms(self):
        start = time.perf_counter()
        self.run()
        return 1e3 * (time.perf_counter() - start)


class GpuSample:
    """Something on the current stream between two events; `launch` issues it, `passes` of a candidate at once."""

    def __init__(self, launch, passes=1, graph=None):
        self.launch, self.passes, self.graph = launch, passes, graph
        self.begin, self.end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def start(self, begin=None, end=None):
        (begin or self.begin).record()
        self.launch()
        (end or self.end).record()

    def ms(self):
        """Milliseconds of one pass, with nothing else on the GPU."""
        torch.cuda._sleep(WAIT_CYCLES)
        self.start()
        self.end.synchronize()
        return self.begin.elapsed_time(self.end) / self.passes


def capture(run, passes):
    """`passes` calls as one CUDA graph. "relaxed": libraries may set themselves up meanwhile."""
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph, capture_error_mode="relaxed"):
        for _ in range(passes):
            run()
    return GpuSample(graph.replay, passes, graph)


def warmed_up(run, times=2):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), torch.no_grad():
        for _ in range(times):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()


def sample_of(run, device, graph_ms=GRAPH_MS):
    """What measures a candidate. Everything that happens at its first call is done then."""
    if device == "cpu":
        with torch.no_grad():
            return CpuSample(run)
    warmed_up(run)
    once = capture(run, 1)
    passes = max(1, min(MOST_PASSES, round(graph_ms / statistics.median(once.ms() for _ in range(3)))))
    return once if passes == 1 else capture(run, passes)


def rotated(names, by):
    by %= len(names)
    return names[by:] + names[:by]


def burst(samples, idle_ms, rounds=7):
    """Median milliseconds of one pass by candidate, of `rounds` samples each after `idle_ms` without work."""
    times, names = {name: [] for name in samples}, list(samples)
    for r in range(rounds + 1):
        for name in rotated(names, r):
            time.sleep(idle_ms / 1e3)
            ms = samples[name].ms()
            if r > 0:  # the first round warms up
                times[name].append(ms)
    return {name: statistics.median(t) for name, t in times.items()}


def sustained(samples, seconds, warm_up=0.3):
    """Median milliseconds of one pass by candidate, of replays back to back for `seconds` in all. GPU only."""
    names, times = list(samples), {name: [] for name in samples}

    def some_rounds(first, count=4):
        """Rounds issued in one go, then awaited: what the GPU waits for the host in between is a small part."""
        pending = []
        for r in range(first, first + count):
            for name in rotated(names, r):
                events = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                samples[name].start(*events)
                pending.append((name, events))
        pending[-1][1][1].synchronize()
        return [(name, begin.elapsed_time(end) / samples[name].passes) for name, (begin, end) in pending]

    start, r = time.monotonic(), 0
    while time.monotonic() - start < warm_up:
        some_rounds(r)
        r += 4
    start = time.monotonic()
    while time.monotonic() - start < seconds or not times[names[0]]:
        for name, ms in some_rounds(r):
            times[name].append(ms)
        r += 4
    return {name: statistics.median(t) for name, t in times.items()}
