// Dot products of strided vectors: the contract between bindings and kernels. Launchers enqueue on
// `stream` of the current device and never synchronise.
#pragma once

#include <cuda_runtime_api.h>

#include "common/export.h"
#include "common/workspace.h"
#include "dot/dot_plan.h"

namespace gpuopt::dot {

// out[row] = sum of self[row][i] * tensor[row][i], in an order that the problem and the device
// decide. Partial results of splits go to the workspace.
GPUOPT_EXPORT cudaError_t dot(const Problem& problem, const Device& device, Workspace& workspace,
                              cudaStream_t stream);

// The same of one row of f16, bf16, f32 or f64, by blocks that add what they have to `out`,
// rounded, in any order. Out starts an aligned word of 4 bytes (8 for f64), all of which is
// written.
GPUOPT_EXPORT cudaError_t dot_fast_atomic(const Problem& problem, const Device& device,
                                          cudaStream_t stream);

}  // namespace gpuopt::dot
