// Launch helpers for conv1d.
#pragma once

#include <type_traits>

#include "common/launch.cuh"
#include "common/types.cuh"
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

// Calls start(std::type_identity<T>()) with the type of a real floating-point dtype.
template <typename Start>
cudaError_t with_type(DType dtype, const Start& start) {
  switch (dtype) {
    case DType::kFloat16:
      return start(std::type_identity<__half>());
    case DType::kBFloat16:
      return start(std::type_identity<__nv_bfloat16>());
    case DType::kFloat32:
      return start(std::type_identity<float>());
    case DType::kFloat64:
      return start(std::type_identity<double>());
    default:
      return cudaErrorInvalidValue;
  }
}

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
