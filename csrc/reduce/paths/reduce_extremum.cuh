// The launcher of max and min, for every type except complex types.
#pragma once

#include "reduce/device/reduce_reducers.cuh"
#include "reduce/paths/reduce_launch.cuh"

namespace gpuopt::reduce {

template <template <typename> class Op>
cudaError_t launch_extremum(const Problem& problem, const Device& device, Workspace& workspace,
                            cudaStream_t stream) {
  if (problem.in_dtype != problem.dtype) return cudaErrorInvalidValue;
  const auto as = [&](auto type, auto accumulator) {
    using In = decltype(type);
    using V = decltype(accumulator);
    return run<In, V>(Op<V>{}, problem, device, workspace, stream);
  };
  switch (problem.dtype) {
    case DType::kBool:
    case DType::kInt8:
    case DType::kInt16:
      return as(AnyType{}, int32_t{});
    case DType::kUInt8:
      return as(uint8_t{}, int32_t{});
    case DType::kInt32:
      return as(int32_t{}, int32_t{});
    case DType::kInt64:
      return as(int64_t{}, int64_t{});
    case DType::kFloat16:
      return as(__half{}, float{});
    case DType::kBFloat16:
      return as(__nv_bfloat16{}, float{});
    case DType::kFloat32:
      return as(float{}, float{});
    case DType::kFloat64:
      return as(double{}, double{});
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace gpuopt::reduce
