// Dispatch on the real floating-point types.
#pragma once

#include "common/types.cuh"

namespace gpuopt {

// Calls f with a value-initialised object of the type of a real floating-point dtype. The pragma
// lets f run on the host or on the device. A list of types as template arguments would compile to a
// chain of comparisons, which takes more registers than a switch.
#pragma nv_exec_check_disable
template <typename F>
__host__ __device__ __forceinline__ auto with_float(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kFloat16:
      return f(__half{});
    case DType::kBFloat16:
      return f(__nv_bfloat16{});
    case DType::kFloat64:
      return f(double{});
    default:
      return f(float{});
  }
}

}  // namespace gpuopt
