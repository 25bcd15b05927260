// Reductions of strided tensors: the contract between bindings and kernels. Launchers enqueue work
// on `stream` of the current device and never synchronise. Split reductions put their partial
// results into the workspace.
#pragma once

#include <cuda_runtime_api.h>

#include "common/export.h"
#include "common/workspace.h"
#include "reduce/reduce_plan.h"

namespace gpuopt::reduce {

// Computes sum(values) / divisor for each output. The divisor must be 1 for integers.
GPUOPT_EXPORT cudaError_t sum(const Problem& problem, double divisor, const Device& device,
                              Workspace& workspace, cudaStream_t stream);
GPUOPT_EXPORT cudaError_t max(const Problem& problem, const Device& device, Workspace& workspace,
                              cudaStream_t stream);
GPUOPT_EXPORT cudaError_t min(const Problem& problem, const Device& device, Workspace& workspace,
                              cudaStream_t stream);

}  // namespace gpuopt::reduce
