// One-dimensional convolution: the interface between bindings and kernels. Launchers enqueue on
// `stream` of the current device and never synchronise.
#pragma once

#include <cuda_runtime_api.h>

#include "common/export.h"
#include "common/workspace.h"
#include "conv1d/policy.h"

namespace gpuopt::conv1d {

// Runs a plan and writes its result to `to`. Fails for a plan that is_aten().
GPUOPT_EXPORT cudaError_t launch(const Plan& plan, void* to, Workspace& workspace,
                                 cudaStream_t stream);

cudaError_t launch(const ForwardPath& path, DType dtype, void* to, cudaStream_t stream);
cudaError_t launch(const InputGradientPath& path, DType dtype, void* to, cudaStream_t stream);
cudaError_t launch(const WeightGradientPath& path, DType dtype, void* to, Workspace& workspace,
                   cudaStream_t stream);

// Computes one position of a causal depthwise convolution and updates its state.
GPUOPT_EXPORT cudaError_t update(const UpdateProblem& problem, cudaStream_t stream);

}  // namespace gpuopt::conv1d
