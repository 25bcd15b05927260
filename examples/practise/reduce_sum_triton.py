"""The ladder of reduce_sum in Triton: a program adds 8192 values, and adds their sum to the result."""

import triton
import triton.language as tl

BLOCK = 8192


@triton.jit
def add_block(x, out, size, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + offsets, mask=offsets < size, other=0.0)
    tl.atomic_add(out, tl.sum(values, axis=0))


def reduce_sum(x):
    if not x.is_contiguous():
        raise NotImplementedError("contiguous memory alone")
    out = x.new_zeros(())
    if x.numel():
        add_block[(triton.cdiv(x.numel(), BLOCK),)](x, out, x.numel(), BLOCK=BLOCK)
    return out
