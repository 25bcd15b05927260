// One-dimensional convolution: the interface between bindings and kernels. Launchers enqueue on
// `stream` of the current device and never synchronise.
#pragma once

#include <cuda_runtime_api.h>

#include "common/export.h"
#include "common/workspace.h"
#include "conv1d/fused_gradient/fused.h"
#include "conv1d/policy.h"

namespace gpuopt::conv1d {

// Each runs a path of its pass and writes its result to `to`. AtenPlan is an error.
GPUOPT_EXPORT cudaError_t launch(const ForwardPath& path, DType dtype, void* to, Workspace&,
                                 cudaStream_t stream);
GPUOPT_EXPORT cudaError_t launch(const InputGradientPath& path, DType dtype, void* to, Workspace&,
                                 cudaStream_t stream);
GPUOPT_EXPORT cudaError_t launch(const WeightGradientPath& path, DType dtype, void* to,
                                 Workspace& workspace, cudaStream_t stream);

// Runs all parts of a plan. Plans through rows are an error: the caller transposes, and plans
// again.
inline cudaError_t launch(const Plan& plan, void* to, Workspace& workspace, cudaStream_t stream) {
  if (plan.through_rows) return cudaErrorInvalidValue;
  for (const Plan* part = &plan; part != nullptr; part = part->rest.get()) {
    void* const part_to = static_cast<char*>(to) + part->offset;
    const cudaError_t error = std::visit(
        [&](const auto& path) { return launch(path, part->dtype, part_to, workspace, stream); },
        part->path);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

// The results of a fused gradient. Null pointers are not computed.
struct FusedResults {
  void *grad_input, *grad_weight, *grad_bias;
};
GPUOPT_EXPORT cudaError_t launch(const FusedPlan& plan, DType dtype, const FusedResults& to,
                                 Workspace& workspace, cudaStream_t stream);

// Computes one position of a causal depthwise convolution and updates its state.
GPUOPT_EXPORT cudaError_t update(const UpdateProblem& problem, cudaStream_t stream);

}  // namespace gpuopt::conv1d
