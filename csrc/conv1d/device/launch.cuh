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

}  // namespace gpuopt::conv1d
