// One-dimensional convolution: the contract between bindings and kernels. Launchers enqueue on
// `stream` of the current device and never synchronise.
#pragma once

#include <cuda_runtime_api.h>

#include "common/export.h"
#include "common/workspace.h"
#include "conv1d/conv1d_plan.h"

namespace gpuopt::conv1d {

// to[n, o, i] = act(bias[o] + the sum over c and k of from[n, c, i * step - padding + k * dilation]
// * weight[o, c, k]), where c runs over the channels of o's group and values outside `from` are 0.
GPUOPT_EXPORT cudaError_t forward(const Problem& problem, const Device& device,
                                  cudaStream_t stream);

// The gradient of forward's `from`, of the same problem with `from` written and `to` read: what its
// forward's output had for a gradient. No bias, no activation.
GPUOPT_EXPORT cudaError_t backward_input(const Problem& problem, const Device& device,
                                         cudaStream_t stream);

// The gradient of forward's weight, which is written and contiguous, of the same problem with `to`
// read: what its forward's output had for a gradient. No bias, no activation. Partial sums go to
// the workspace.
GPUOPT_EXPORT cudaError_t backward_weight(const Problem& problem, const Device& device,
                                          Workspace& workspace, cudaStream_t stream);

// One step of a causal depthwise convolution.
GPUOPT_EXPORT cudaError_t update(const UpdateProblem& problem, cudaStream_t stream);

}  // namespace gpuopt::conv1d
