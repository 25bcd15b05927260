// The element types of reductions.
#pragma once

#include "common/floats.cuh"

namespace gpuopt::rows {

// Calls f with a value-initialised object of the type, for a float or a signed integer of 32 or 64
// bits.
template <typename F>
auto with_number(DType dtype, F&& f) {
  if (dtype == DType::kInt32) return f(int32_t{});
  if (dtype == DType::kInt64) return f(int64_t{});
  return with_float(dtype, f);
}

}  // namespace gpuopt::rows
