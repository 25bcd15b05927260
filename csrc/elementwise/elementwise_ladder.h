// The optimisation ladder of element-wise operators: the product of two tensors, where nothing
// counts but how bytes are moved. Sources: grid strides, Mark Harris, "CUDA Pro Tip: Write Flexible
// Kernels with Grid-Stride Loops" (NVIDIA, 2013); vectors, Justin Luitjens, "CUDA Pro Tip: Increase
// Performance with Vectorized Memory Access" (NVIDIA, 2013); pairs of halves, Mark Harris,
// "Mixed-Precision Programming with CUDA 8" (NVIDIA, 2016).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/export.h"
#include "common/ladder.h"

namespace gpuopt::elementwise {

inline constexpr LadderStep kLadder[] = {
    {"one_a_thread", "f32: a thread an element, and as many blocks as that takes"},
    {"grid_stride",
     "f32: a grid that fills the GPU once, whose threads go through all elements in strides: no "
     "block has to be started for each 256 of them"},
    {"vectors",
     "f32: 16 bytes an access: a quarter of the loads and stores, and four times the bytes in "
     "flight"},
    {"half_scalar",
     "f16: one_a_thread again, with elements of half the size: accesses of 2 bytes, twice the "
     "instructions for the same bytes"},
    {"half2",
     "f16: two halves lie in one register: an access of 4 bytes, and one multiplication for both"},
    {"half_vectors",
     "f16: 16 bytes an access, of four such pairs: again as wide as a thread can move them"},
    {"production", "gpuopt::mul, see csrc/elementwise/README.md"},
};

struct LadderProblem {
  const void* self = nullptr;
  const void* other = nullptr;
  void* out = nullptr;  // no memory of the other two
  int64_t size = 0;
  int sms = 1;
};

// Products of f32, from "half_scalar" on of f16, by any step but the last. All three begin at
// multiples of an access: of 16 bytes for "vectors" and "half_vectors", of 4 for "half2".
GPUOPT_EXPORT cudaError_t ladder_mul(int step, const LadderProblem& problem, cudaStream_t stream);

}  // namespace gpuopt::elementwise
