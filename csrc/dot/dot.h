// Dot products of strided vectors: the contract between bindings and kernels. Launchers enqueue
// work on `stream` of the current device and never synchronise.
#pragma once

#include <cuda_runtime_api.h>

#include "common/export.h"
#include "common/workspace.h"
#include "dot/dot_plan.h"

namespace gpuopt::dot {

// out[row] = sum of self[row][i] * tensor[row][i]. The order of additions depends only on the
// problem and the device. Split rows put their partial sums into the workspace.
GPUOPT_EXPORT cudaError_t dot(const Problem& problem, const Device& device, Workspace& workspace,
                              cudaStream_t stream);

// As dot(), for one row of f16, bf16, f32 or f64. Each block rounds its sum and adds it to `out`,
// in any order. `out` must be the first value in an aligned word of 4 bytes (8 for f64), since the
// whole word is written.
GPUOPT_EXPORT cudaError_t dot_fast_atomic(const Problem& problem, const Device& device,
                                          cudaStream_t stream);

}  // namespace gpuopt::dot
