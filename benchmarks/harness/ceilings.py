"""Bandwidth ceilings of this GPU's memory, measured in the same run as the cases that are compared with them.

A ceiling is the highest bandwidth that a simple kernel reaches for one pattern of traffic at one size. The patterns are: only
reading, only writing, copying, and reading two streams to write one.

The kernels are Triton's (``_ceiling_kernels.py``) in several block sizes, warp counts and cache hints, and PyTorch's own calls,
among them the driver's copy and memset. They are timed like every case, with the L2 flushed. Without Triton only PyTorch's calls
are left, and the ceilings may be a few per cent low.

The size counts all bytes moved, read and written. A case is compared with the size class nearest to its own traffic (the larger of
two that are equally near) and the pattern with the nearest share of reads.
"""

from collections.abc import Callable

import torch

SIZES = {"128 MiB": 128 << 20, "512 MiB": 512 << 20, "4 GiB": 4 << 30}
READ_SHARE = {"read": 1.0, "two reads, one write": 2 / 3, "copy": 1 / 2, "write": 0.0}
# (block, warps). A thread has block / warps / 32 floats in flight.
SHAPES = [(1024, 4), (2048, 4), (2048, 8), (4096, 4), (4096, 8), (8192, 8)]
HINTS = {"": ("", ""), " streaming": ("evict_first", ".cs")}
LARGEST_BLOCK = max(block for block, _ in SHAPES)


def _torch_contenders(pattern: str, buffers: list[torch.Tensor]) -> dict[str, Callable]:
    if pattern == "read":
        (source,) = buffers
        return {"torch.sum": lambda: source.sum(), "torch.amax": lambda: source.amax()}
    if pattern == "write":
        (target,) = buffers
        return {"fill_": lambda: target.fill_(1.5), "zero_": lambda: target.zero_()}
    if pattern == "copy":
        source, target = buffers
        return {"copy_": lambda: target.copy_(source), "torch.neg": lambda: torch.neg(source, out=target)}
    first, second, target = buffers
    return {"torch.mul": lambda: torch.mul(first, second, out=target)}


def _triton_contenders(pattern: str, buffers: list[torch.Tensor], shapes: list[tuple[int, int]]) -> dict[str, Callable]:
    from benchmarks.harness import ceiling_kernels as kernels

    count = buffers[0].numel()
    kernel, arguments = {
        "read": (kernels.read, [*buffers, torch.empty(count // 1024, device=buffers[0].device)]),
        "write": (kernels.write, [*buffers, 1.5]),
        "copy": (kernels.copy, buffers),
        "two reads, one write": (kernels.two_reads_one_write, buffers),
    }[pattern]

    def launch(block, warps, evict, cache):
        kernel[(count // block,)](*arguments, BLOCK=block, EVICT=evict, CACHE=cache, num_warps=warps)

    return {
        f"Triton {block}x{warps}{hint}": (lambda shape=(block, warps, *hints): launch(*shape))
        for block, warps in shapes
        for hint, hints in HINTS.items()
    }


def classes_for(case_bytes: list[int], free_bytes: int) -> list[str]:
    """The size classes that the cases need, without those too large for the free memory."""
    fitting = [name for name, size in SIZES.items() if size <= free_bytes // 2] or [next(iter(SIZES))]
    return [name for name in fitting if name in {_nearest(fitting, size) for size in case_bytes}]


def _nearest(names, size: int) -> str:
    def factor(name: str) -> float:
        return max(SIZES[name] / max(size, 1), size / SIZES[name])

    return min(names, key=lambda name: (factor(name), -SIZES[name]))


def measure(timer, names: list[str], device: str, quick: bool) -> list[dict]:
    """Measures one ceiling for each size class and pattern."""
    try:
        import triton  # noqa: F401

        shapes = SHAPES[1::2] if quick else SHAPES
    except ImportError:
        shapes = []
    results = []
    for name in names:
        for pattern in READ_SHARE:
            results.append({"size": name, "pattern": pattern, **_best(timer, pattern, SIZES[name], shapes, device)})
    return results


def _best(timer, pattern: str, size: int, shapes: list[tuple[int, int]], device: str) -> dict:
    streams = {"read": 1, "write": 1, "copy": 2, "two reads, one write": 3}[pattern]
    count = size // 4 // streams // LARGEST_BLOCK * LARGEST_BLOCK
    moved = count * 4 * streams
    buffers = [torch.randn(count, device=device) for _ in range(streams)]
    contenders = _torch_contenders(pattern, buffers)
    if shapes:
        contenders |= _triton_contenders(pattern, buffers, shapes)
    timings = timer.compare(contenders, lambda seed: (), moved)
    failed = [f"{who}: {timing}" for who, timing in timings.items() if isinstance(timing, Exception)]
    timed = {who: timing for who, timing in timings.items() if not isinstance(timing, Exception)}
    if not timed:
        raise RuntimeError(f"no kernel could measure the {pattern} ceiling: {'; '.join(failed)}")
    who = min(timed, key=lambda name: timed[name].median)
    return {
        "gbps": moved / timed[who].median / 1e3,
        "bytes": moved,
        "us": timed[who].median,
        "by": who,
        "failed": failed,
    }


def pick(measured: list[dict], read: int, written: int) -> dict | None:
    """The ceiling that a case with this traffic is compared with."""
    if not measured or not read + written:
        return None
    share = read / (read + written)
    pattern = min(READ_SHARE, key=lambda name: abs(READ_SHARE[name] - share))
    size = _nearest({entry["size"] for entry in measured}, read + written)
    return next(
        {key: entry[key] for key in ("size", "pattern", "gbps")}
        for entry in measured
        if (entry["size"], entry["pattern"]) == (size, pattern)
    )
