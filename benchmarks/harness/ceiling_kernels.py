"""The simplest Triton kernels that read, write, copy, and read two streams to write one.

A program moves one block of elements. Sizes are multiples of the block, so no access is masked. ``EVICT`` and ``CACHE`` are
Triton's hints for data that is used once.
"""

import triton
import triton.language as tl


@triton.jit
def read(source, target, BLOCK: tl.constexpr, EVICT: tl.constexpr, CACHE: tl.constexpr):
    program = tl.program_id(0)
    offsets = program.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(source + offsets, eviction_policy=EVICT)
    # Storing one float per block keeps the compiler from removing the loads, and adds almost no traffic.
    tl.store(target + program, tl.sum(values, axis=0), cache_modifier=CACHE)


@triton.jit
def write(target, value, BLOCK: tl.constexpr, EVICT: tl.constexpr, CACHE: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + offsets, tl.zeros([BLOCK], tl.float32) + value, cache_modifier=CACHE)


@triton.jit
def copy(source, target, BLOCK: tl.constexpr, EVICT: tl.constexpr, CACHE: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + offsets, tl.load(source + offsets, eviction_policy=EVICT), cache_modifier=CACHE)


@triton.jit
def two_reads_one_write(first, second, target, BLOCK: tl.constexpr, EVICT: tl.constexpr, CACHE: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(first + offsets, eviction_policy=EVICT)
    b = tl.load(second + offsets, eviction_policy=EVICT)
    tl.store(target + offsets, a * b, cache_modifier=CACHE)
