// Launch helpers for conv1d.
#pragma once

#include <type_traits>

#include "common/launch.cuh"
#include "common/types.cuh"
#include "conv1d/geometry.h"

namespace gpuopt::conv1d {

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

// Launches a kernel that declares `declared` bytes of static shared memory.
template <typename Kernel, typename Args>
cudaError_t launch_opted_in(Kernel* kernel, const LaunchShape& shape, size_t most_shared_bytes,
                            int64_t declared, cudaStream_t stream, const Args& args) {
  if (shape.shared_bytes > static_cast<size_t>(kSharedBytes - declared)) {
    // The limit is the same in every call, because other host threads may launch in between.
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(most_shared_bytes));
    if (error != cudaSuccess) return error;
  }
  return launch_kernel(kernel, shape, stream, args);
}

}  // namespace gpuopt::conv1d
