// The optimisation ladder of element-wise operators: the product of two tensors, whose time is the
// time to move its bytes.
//
// Sources: for grid strides, Mark Harris, "CUDA Pro Tip: Write Flexible Kernels with Grid-Stride
// Loops" (NVIDIA, 2013); for vectors, Justin Luitjens, "CUDA Pro Tip: Increase Performance with
// Vectorized Memory Access" (NVIDIA, 2013); for pairs of halves, Mark Harris, "Mixed-Precision
// Programming with CUDA 8" (NVIDIA, 2016).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/export.h"
#include "common/ladder.h"

namespace gpuopt::elementwise {

inline constexpr LadderStep kLadder[] = {
    {"one_a_thread", "f32: one thread per element, in as many blocks as needed"},
    {"grid_stride",
     "f32: a grid that fills the GPU once. Its threads stride through all elements, so no block "
     "has to be started for every 256 of them"},
    {"vectors",
     "f32: 16 bytes per access. That is a quarter of the loads and stores, and four times the "
     "bytes in flight"},
    {"half_scalar",
     "f16: one_a_thread with elements of half the size. Accesses of 2 bytes need twice the "
     "instructions for the same bytes"},
    {"half2",
     "f16: two halves per register. An access has 4 bytes, and one instruction multiplies both"},
    {"half_vectors", "f16: four such pairs per access: 16 bytes, the widest access of a thread"},
    {"production", "gpuopt::mul, see csrc/elementwise/README.md"},
};

struct LadderProblem {
  const void* self = nullptr;
  const void* other = nullptr;
  void* out = nullptr;  // overlaps neither input
  int64_t size = 0;
  int sms = 1;
};

// Computes products by any step except the last: of f32, from "half_scalar" on of f16. All pointers
// are aligned to an access: 16 bytes for "vectors" and "half_vectors", 4 for "half2".
GPUOPT_EXPORT cudaError_t ladder_mul(int step, const LadderProblem& problem, cudaStream_t stream);

}  // namespace gpuopt::elementwise
