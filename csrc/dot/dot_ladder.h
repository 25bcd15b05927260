// The optimisation ladder of dot products: one of two vectors of f16, and how threads bring their
// products together. Sources: the fast half atomic add is PyTorch's fastAtomicAdd
// (aten/src/ATen/native/cuda/KernelUtils.cuh); github.com/BBuf/how-to-optim-algorithm-in-cuda,
// FastAtomicAdd, compares "half_atomic", "half2_atomic" and "fast_atomic" by a dot product of 2^25
// values whose every thread adds atomically (422, 137 and 137 ms on an A100).
//
// Atomic additions to f16 round the sum each time, in any order, and so lose what is small beside
// it: a sum of ones stays at 2048, whose next number is 2050. Only the steps from
// "f32_partial_sums" on round once.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/export.h"
#include "common/ladder.h"
#include "common/workspace.h"

namespace gpuopt::dot {

inline constexpr LadderStep kLadder[] = {
    {"half_atomic",
     "a thread a product, which it adds to the result by an atomic operation: hardware has none "
     "for a single f16, so it becomes a loop of compare-and-swap until no other thread came "
     "between; "
     "each addition rounds, so that a sum of ones ends at 2048",
     /*repeatable=*/false},
    {"block_then_half_atomic",
     "a block adds up its products in f32, by shuffles and in shared memory: one atomic operation "
     "and one rounding for 256 products",
     /*repeatable=*/false},
    {"half2_atomic",
     "each thread adds by itself again, as in half_atomic, but two neighbouring products to two "
     "sums at once, which hardware does for pairs of f16, without a loop; a last launch adds the "
     "two; each addition rounds again",
     /*repeatable=*/false},
    {"fast_atomic",
     "a thread has one product, as in half_atomic, and adds it as one side of the aligned pair "
     "that the result lies in; the other side is given -0, which changes no number",
     /*repeatable=*/false},
    {"f32_partial_sums",
     "no atomic operation: the blocks of block_then_half_atomic leave their sums in f32, and a "
     "second launch of one block adds these, in order, and rounds once"},
    {"vectors",
     "a grid that fills the GPU once takes all products, many a thread in 16-byte loads, so that "
     "few sums are left for the second launch"},
    {"production", "gpuopt::dot, see csrc/dot/README.md"},
};

struct LadderProblem {
  const void* self = nullptr;
  const void* tensor = nullptr;
  int64_t size = 0;
  // The first of two f16, at a multiple of 4 bytes. The second may be overwritten.
  void* out = nullptr;
  int sms = 1;
};

// The sum of `size` products of f16, by any step but the last; 0 of none. For "vectors" both
// vectors must be aligned to 16 bytes.
GPUOPT_EXPORT cudaError_t ladder_dot(int step, const LadderProblem& problem, Workspace& workspace,
                                     cudaStream_t stream);

}  // namespace gpuopt::dot
