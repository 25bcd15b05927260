"""Measures device time (the time on the GPU) and call time (the time of the calling thread).

Device time comes from CUDA events. All contenders of a case are timed in the same way, which depends on the fastest of them:

* From 15 us on, one event pair is around one call. A buffer of twice the L2 is written before each call, so inputs are cold. The
  flush leaves dirty lines that the call must evict, and the call leaves its own dirty lines behind. So the bytes that reach memory
  during a call are the bytes that it moves. The flush and the call are on one stream and do not overlap. The device waits while the
  host queues a whole batch: otherwise a slow host (Inductor's wrapper takes 20-40 us) would count as device time.
* Below 15 us an event pair and a launch take as long as the kernel. So a CUDA graph of several hundred calls is replayed, and its
  time is divided by their number. Inputs and outputs rotate through enough copies to fill twice the L2, so data is cold. The label
  says "partly warm" if that needs more than MAX_COPIES copies or more than MAX_COPIED_BYTES. A case with a contender of SLOW_US or
  more is timed in the first way.

Contenders run in alternating rounds, so that a drifting clock or another load on the host affects all of them. A contender that
takes longer than SLOW_US runs once: the first steps of a ladder may take seconds. The median is reported, with the quartiles.

Call time comes from ``torch.utils.benchmark``: the host time of one call while the device keeps up.
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
# Operands can be far larger than the bytes that a call moves, for example when a few rows are added to a large tensor.
MAX_COPIED_BYTES = 16 << 30
BATCH = 50
ROUNDS = 5


@dataclasses.dataclass(frozen=True)
class Timing:
    """The time of one call in microseconds: median, lower and upper quartile, minimum."""

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
    """The number of input sets that the graph rotates through so that no call finds its data in L2.

    ``held_bytes`` is the memory that one set occupies, including parts that the call does not touch.
    """
    wanted = math.ceil(flush_bytes / max(case_bytes, 1))
    return max(1, min(MAX_COPIES, wanted, MAX_COPIED_BYTES // max(held_bytes, 1)))


def held_bytes(args: tuple) -> int:
    return sum(arg.untyped_storage().nbytes() for arg in args if isinstance(arg, torch.Tensor))


class DeviceTimer:
    """Times functions on the current CUDA device. ``budget_s`` is the device time for one contender."""

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
        """Frees all cached memory between cases, including the pools of graphs."""
        gc.collect()
        torch.cuda.empty_cache()

    def compare(
        self, contenders: Mapping[str, Callable], build: Callable[[int], tuple], case_bytes: int
    ) -> dict[str, Timing | Exception]:
        """Times every contender on ``build(seed)``. A contender that raises gets its exception instead of a time."""
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
    """``count`` times of ``call`` in microseconds, and whether the host had queued all calls before the device began."""
    hold_us = 60.0
    while True:
        starts = [torch.cuda.Event(enable_timing=True) for _ in range(count)]
        ends = [torch.cuda.Event(enable_timing=True) for _ in range(count)]
        torch.cuda.synchronize()
        # A spin kernel holds the device while the host queues the calls. Its argument is in clock cycles, about 2000 per
        # microsecond. If the device still begins before the last call is queued, the events may include host time: hold longer.
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
        ahead = ahead or min(samples) >= SLOW_US  # host time is negligible beside such calls
        if ahead or hold_us > 1000.0:
            return samples, ahead
        hold_us *= 3.0


def capture(call: Callable, sets: list[tuple], calls: int) -> torch.cuda.CUDAGraph:
    """A CUDA graph of ``calls`` calls, which rotate through the arguments in ``sets``."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call(*sets[0])
    torch.cuda.current_stream().wait_stream(side)
    # Keeping the latest outputs alive during capture makes the outputs rotate like the inputs.
    outputs = collections.deque(maxlen=len(sets))
    graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
    stream = torch.cuda.current_stream()
    try:
        with torch.cuda.graph(graph, pool=pool):
            for i in range(calls):
                outputs.append(call(*sets[i % len(sets)]))
    except Exception:
        # A call that cannot be captured (for example because it synchronises) leaves the capture stream current and the
        # allocator in capture mode. Without this cleanup no later call would work.
        torch.cuda.set_stream(stream)
        with contextlib.suppress(RuntimeError):
            torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), pool)
        raise
    return graph


def call_times(
    statements: Mapping[str, str], variables: dict, label: str, sub_label: str, seconds: float
) -> dict[str, "torch.utils.benchmark.Measurement"]:
    """Times statements that do the same, in alternating rounds. Each one gets ``seconds`` in total."""
    # Imported late, because the import looks for a compiler and prints a message if there is no GPU.
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
