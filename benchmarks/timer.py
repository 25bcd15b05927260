"""Two clocks: device time (what the GPU spends) and call time (what the caller's thread spends).

Device time, from CUDA events. How a case is timed depends on how long its fastest contender takes, so that all
contenders of a case are always timed the same way:

* From 15 us up: one event pair around one call, and before each call a buffer of twice the L2 is written. Inputs
  start cold. The flush leaves dirty lines that the call must evict, just as the call leaves its own dirty lines
  behind, so the bytes that reach memory during a call are the bytes it moves. The flush and the call are on one
  stream, so they do not overlap. The device is held back while the host queues a whole batch: otherwise a slow
  host (Inductor's wrapper takes 20-40 us) would be counted as device time.
* Below 15 us, unless another contender takes SLOW_US: an event pair and a launch cost as much as the kernel, so a
  CUDA graph of several hundred calls is replayed and its time divided. Inside the graph the inputs, and the outputs
  with them, rotate through enough copies to fill twice the L2, so data is cold here too. If that needs more than
  MAX_COPIES copies, or more than MAX_COPIED_BYTES for them, the label says "partly warm".

Contenders take turns in rounds, so that a drifting clock or a neighbour on the host hits all of them alike. One that takes
longer than SLOW_US has one turn: the first steps of a ladder may take seconds. The reported figure is the median; the quartiles say how far to trust it.

Call time, from ``torch.utils.benchmark``: what one call costs the caller when the device keeps up.
"""

import collections
import contextlib
import dataclasses
import functools
import gc
import math
import statistics
from collections.abc import Callable, Mapping

import torch

GRAPH_BELOW_US = 15.0
SLOW_US = 50e3
GRAPH_CALLS = 256
MAX_COPIES = 2048
# Operands can be far larger than what a call moves: sums of a few rows into a large tensor, say.
MAX_COPIED_BYTES = 16 << 30
BATCH = 50
ROUNDS = 5


@dataclasses.dataclass(frozen=True)
class Timing:
    """Microseconds of one call: median, lower and upper quartile, fastest."""

    median: float
    q1: float
    q3: float
    fastest: float
    samples: int
    method: str


def summarise(samples: list[float], method: str) -> Timing:
    if len(samples) == 1:
        return Timing(samples[0], samples[0], samples[0], samples[0], 1, method)
    q1, median, q3 = statistics.quantiles(samples, n=4, method="inclusive")
    return Timing(median, q1, q3, min(samples), len(samples), method)


def copies_to_fill(flush_bytes: int, case_bytes: int, held_bytes: int = 0) -> int:
    """How many input sets the graph rotates through so that no call finds its data in L2. ``held_bytes``: the memory that
    one set takes, whether it is used or not."""
    wanted = math.ceil(flush_bytes / max(case_bytes, 1))
    return max(1, min(MAX_COPIES, wanted, MAX_COPIED_BYTES // max(held_bytes, 1)))


def held_bytes(args: tuple) -> int:
    return sum(arg.untyped_storage().nbytes() for arg in args if isinstance(arg, torch.Tensor))


class DeviceTimer:
    """Times callables on the current CUDA device; ``budget_s`` is the device time one contender gets."""

    def __init__(self, budget_s: float = 0.06):
        self.budget_us = budget_s * 1e6
        self.l2_bytes = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        self.flush_bytes = 2 * max(self.l2_bytes, 8 << 20)
        self._buffer = torch.empty(self.flush_bytes // 4, dtype=torch.int32, device="cuda")
        self._flush_us = statistics.median(_samples(self._flush, 11)[0])

    def _flush(self):
        self._buffer.fill_(1)

    def free_bytes(self) -> int:
        return torch.cuda.mem_get_info()[0]

    def release_memory(self):
        """Between cases: give back what was allocated, graphs' pools too."""
        gc.collect()
        torch.cuda.empty_cache()

    def compare(
        self, contenders: Mapping[str, Callable], build: Callable[[int], tuple], case_bytes: int
    ) -> dict[str, Timing | Exception]:
        """Time every contender on ``build(seed)``; one that raises gets its exception instead of a time."""
        results: dict[str, Timing | Exception] = {}
        runs: dict[str, Callable[[], object]] = {}
        guess: dict[str, float] = {}
        args = build(0)
        for name, call in contenders.items():
            try:
                call(*args)
                runs[name] = functools.partial(call, *args)
                guess[name] = min(_samples(runs[name], 2)[0])
                if guess[name] < SLOW_US:
                    call(*args)
                    guess[name] = statistics.median(_samples(runs[name], 7, before=self._flush)[0])
            except Exception as error:
                results[name] = error
        if not guess:
            return results
        slow = {name for name in guess if guess[name] >= SLOW_US}
        if min(guess.values()) >= GRAPH_BELOW_US or slow:
            method, calls, before, pause_us = "events, L2 flushed", 1, self._flush, self._flush_us
        else:
            copies = copies_to_fill(self.flush_bytes, case_bytes, held_bytes(args))
            sets = [args] + [build(seed) for seed in range(1, copies)]
            calls, before, pause_us = copies * math.ceil(GRAPH_CALLS / copies), None, 0.0
            temperature = "cold" if copies * case_bytes >= self.flush_bytes else "partly warm"
            method = f"graph of {calls} calls, inputs rotated ({temperature})"
            for name in guess:
                try:
                    runs[name] = capture(contenders[name], sets, calls).replay
                    guess[name] = statistics.median(_samples(runs[name], 3)[0])
                except Exception as error:
                    results[name] = RuntimeError(f"not capturable in a CUDA graph: {error}")
                    torch.cuda.synchronize()
        samples = collections.defaultdict(list)
        host_bound = set()
        for _ in range(ROUNDS):
            for name in [name for name in guess if name not in results]:
                if name in slow and name in samples:
                    continue
                count = int(self.budget_us / ROUNDS / (guess[name] + pause_us))
                try:
                    batch, ahead = _samples(runs[name], 1 if name in slow else max(3, min(BATCH, count)), before)
                except Exception as error:
                    results[name] = error
                    continue
                samples[name] += [sample / calls for sample in batch]
                if not ahead:
                    host_bound.add(name)
        for name in samples:
            if name not in results:
                results[name] = summarise(samples[name], method + (", host-bound" if name in host_bound else ""))
        return results


def _samples(call: Callable, count: int, before: Callable | None = None) -> tuple[list[float], bool]:
    """``count`` times of ``call`` in microseconds, and whether the host stayed ahead while it queued them."""
    hold_us = 60.0
    while True:
        starts = [torch.cuda.Event(enable_timing=True) for _ in range(count)]
        ends = [torch.cuda.Event(enable_timing=True) for _ in range(count)]
        torch.cuda.synchronize()
        # Hold the device in a spin kernel (its argument is clock cycles, about 2000 a microsecond). If it got to the
        # first sample before the last was queued even so, the events may have counted host time: hold longer.
        torch.cuda._sleep(int(2000 * hold_us * count))
        for start, end in zip(starts, ends):
            if before is not None:
                before()
            start.record()
            call()
            end.record()
        ahead = not starts[0].query()
        torch.cuda.synchronize()
        samples = [start.elapsed_time(end) * 1e3 for start, end in zip(starts, ends)]
        ahead = ahead or min(samples) >= SLOW_US  # what the host adds is nothing to that
        if ahead or hold_us > 1000.0:
            return samples, ahead
        hold_us *= 3.0


def capture(call: Callable, sets: list[tuple], calls: int) -> torch.cuda.CUDAGraph:
    """A CUDA graph of ``calls`` calls that takes its arguments from ``sets`` in turn."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call(*sets[0])
    torch.cuda.current_stream().wait_stream(side)
    # Keeping the latest outputs alive while capturing makes the outputs rotate as the inputs do.
    outputs = collections.deque(maxlen=len(sets))
    graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
    stream = torch.cuda.current_stream()
    try:
        with torch.cuda.graph(graph, pool=pool):
            for i in range(calls):
                outputs.append(call(*sets[i % len(sets)]))
    except Exception:
        # A call that may not be captured (it synchronises, say) leaves the capture stream current and the allocator
        # recording, and nothing after it would work.
        torch.cuda.set_stream(stream)
        with contextlib.suppress(RuntimeError):
            torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), pool)
        raise
    return graph


def call_times(
    statements: Mapping[str, str], variables: dict, label: str, sub_label: str, seconds: float
) -> dict[str, "torch.utils.benchmark.Measurement"]:
    """Time statements that do the same thing, in turns; ``seconds`` is what each gets in all."""
    # Imported late: it looks for a compiler, and says so where there is no GPU.
    from torch.utils import benchmark

    rounds = 3
    timers = {
        name: benchmark.Timer(stmt, globals=variables, label=label, sub_label=sub_label, description=name)
        for name, stmt in statements.items()
    }
    parts = collections.defaultdict(list)
    for _ in range(rounds):
        for name, timer in timers.items():
            parts[name].append(timer.blocked_autorange(min_run_time=seconds / rounds))
    return {name: benchmark.Measurement.merge(measurements)[0] for name, measurements in parts.items()}
