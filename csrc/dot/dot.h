// Dot products of strided vectors: the contract between bindings and kernels. Launchers enqueue
// work on `stream` of the current device and never synchronise.
#pragma once

#include <cuda_runtime_api.h>

#include "common/export.h"
#include "common/workspace.h"
#include "dot/dot_args.h"

namespace gpuopt::dot {

// out[row] = sum of self[row][i] * tensor[row][i], for all parts of a plan. Split rows put their
// partial sums into the workspace.
GPUOPT_EXPORT cudaError_t launch(const Plan& plan, Workspace& workspace, cudaStream_t stream);

}  // namespace gpuopt::dot
