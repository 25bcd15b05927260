// One-dimensional convolution: the contract between bindings and kernels. Launchers enqueue on
// `stream` of the current device and never synchronise.
#pragma once

#include <cuda_runtime_api.h>

#include "common/export.h"
#include "common/workspace.h"
#include "conv1d/policy.h"

namespace gpuopt::conv1d {

// Computes what plan() was asked for into `to`. A plan that is_aten() is an error.
GPUOPT_EXPORT cudaError_t launch(const Plan& plan, void* to, Workspace& workspace,
                                 cudaStream_t stream);

cudaError_t launch(const ForwardPath& path, DType dtype, void* to, cudaStream_t stream);
cudaError_t launch(const InputGradientPath& path, DType dtype, void* to, cudaStream_t stream);
cudaError_t launch(const WeightGradientPath& path, DType dtype, void* to, Workspace& workspace,
                   cudaStream_t stream);

// One step of a causal depthwise convolution.
GPUOPT_EXPORT cudaError_t update(const UpdateProblem& problem, cudaStream_t stream);

}  // namespace gpuopt::conv1d
