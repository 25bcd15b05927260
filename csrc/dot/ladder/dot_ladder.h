// The optimisation ladder of dot products: the product of two fp16 vectors, and how threads combine
// their products.
//
// Sources: the fast half atomic add is PyTorch's fastAtomicAdd
// (aten/src/ATen/native/cuda/KernelUtils.cuh). FastAtomicAdd in
// github.com/BBuf/how-to-optim-algorithm-in-cuda compares "half_atomic", "half2_atomic" and
// "fast_atomic" by a dot product of 2^25 values where every thread adds atomically (422, 137 and
// 137 ms on an A100).
//
// An atomic addition to fp16 rounds the sum each time, and the order varies. Addends that are small
// beside the sum are lost: a sum of ones stops at 2048, because the next fp16 number is 2050. Only
// the steps from "f32_partial_sums" on round once.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/export.h"
#include "common/ladder.h"
#include "common/workspace.h"

namespace gpuopt::dot {

inline constexpr LadderStep kLadder[] = {
    {"half_atomic",
     "each thread adds one product to the result with atomicAdd. Hardware cannot add a single f16 "
     "to memory, so this is a compare-and-swap loop, which starts again whenever another thread "
     "came between. Each addition rounds: a sum of ones stops at 2048",
     /*repeatable=*/false},
    {"block_then_half_atomic",
     "each block first adds its 256 products in f32, with shuffles and shared memory. One atomic "
     "addition and one rounding are left for all of them",
     /*repeatable=*/false},
    {"half2_atomic",
     "each thread adds by itself, as in half_atomic, but two neighbouring products to two sums at "
     "once: hardware adds a pair of f16 without a loop. A second launch adds the two sums. Each "
     "addition rounds",
     /*repeatable=*/false},
    {"fast_atomic",
     "each thread adds one product, as in half_atomic, but as one side of the aligned pair that "
     "holds the result. The other side is -0, which changes no number",
     /*repeatable=*/false},
    {"f32_partial_sums",
     "no atomic operation: each block, as in block_then_half_atomic, stores its sum in f32. A "
     "second launch of one block adds these sums, in order, and rounds once"},
    {"vectors",
     "a grid that fills the GPU once. Each thread has many products, which it loads 16 bytes at a "
     "time, so few sums are left for the second launch"},
    {"production", "gpuopt::dot, see csrc/dot/README.md"},
};

struct LadderProblem {
  const void* self = nullptr;
  const void* tensor = nullptr;
  int64_t size = 0;
  // Two f16 at a multiple of 4 bytes: the result, and a second one that may be overwritten.
  void* out = nullptr;
  int sms = 1;
};

// Computes the sum of `size` products of f16 by any step except the last. The sum of no products is
// 0. For "vectors" both inputs must be aligned to 16 bytes.
GPUOPT_EXPORT cudaError_t ladder_dot(int step, const LadderProblem& problem, Workspace& workspace,
                                     cudaStream_t stream);

}  // namespace gpuopt::dot
