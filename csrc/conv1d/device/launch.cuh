// Launch helpers for conv1d.
#pragma once

#include "common/floats.cuh"
#include "common/launch.cuh"
#include "common/workspace.h"
#include "conv1d/geometry.h"

namespace gpuopt::conv1d {

// The types that a kernel is compiled for.
template <typename T>
concept Half = sizeof(T) == 2;
template <typename T>
concept Single = sizeof(T) == 4;
template <typename T>
concept UpToSingle = sizeof(T) <= 4;

// Starts kernel_of<T>(plan), which writes to `to`. A path without a kernel for T is an error.
template <typename T, typename Plan>
cudaError_t launch_path(const Plan& plan, void* to, cudaStream_t stream) {
  if constexpr (requires { kernel_of<T>(plan); }) {
    auto args = plan.args;
    args.to = to;
    return launch_kernel(kernel_of<T>(plan), plan.launch, stream, args);
  } else {
    return cudaErrorInvalidValue;
  }
}

}  // namespace gpuopt::conv1d
