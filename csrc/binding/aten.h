// ATen's kernels as CPU kernels.
#pragma once

#include <ATen/ATen.h>

namespace gpuopt {

// Returns compute(), which calls ATen. Which dtypes ATen supports depends on its version, so its
// error is caught and given the name of the operator. The message ends with `use`: "expected
// another dtype to sum in".
template <typename Compute>
at::Tensor call_aten(const char* op, at::ScalarType dtype, const char* use, Compute compute) {
  try {
    return compute();
  } catch (const c10::NotImplementedError& error) {
    TORCH_CHECK_NOT_IMPLEMENTED(false, op, " (CPU) is not implemented for ", dtype,
                                ": expected another dtype", use, " (",
                                error.what_without_backtrace(), ")");
  }
}

}  // namespace gpuopt
