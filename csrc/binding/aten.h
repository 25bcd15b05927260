// ATen's kernels as kernels of gpuopt's operators, with the names of these in errors.
#pragma once

#include <ATen/ATen.h>

#include <string>

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

// ---------------------------------------------------------------- operators with an index

// Names an entry that is out of the range of dimension `dim`, or returns nothing.
inline std::string wrong_entry(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  if (index.numel() == 0) return {};
  const int64_t bins = self.dim() == 0 ? 1 : self.size(dim);
  const auto [min, max] = at::aminmax(index);
  const auto least = min.item().toLong(), greatest = max.item().toLong();
  if (least >= 0 && greatest < bins) return {};
  return c10::str("index must be in the range of dimension ", dim,
                  " of input: expected values from 0 to ", bins - 1, ", got ",
                  least < 0 ? least : greatest);
}

// Calls ATen, and gives its errors the message of `describe`, if that is not empty. Only ATen knows
// which dtypes it supports, where it checks the index, and which of two exception types it throws.
template <typename Call, typename Describe>
at::Tensor call_aten(const char* op, const at::Tensor& self, Call call, Describe describe) {
  try {
    return call();
  } catch (const c10::NotImplementedError& error) {
    const std::string message = describe();
    TORCH_CHECK_NOT_IMPLEMENTED(message.empty(), op, ": ", message);
    TORCH_CHECK_NOT_IMPLEMENTED(false, op, " (", self.device().type(), ") is not implemented for ",
                                self.scalar_type(), ": expected another dtype (",
                                error.what_without_backtrace(), ")");
  } catch (const c10::IndexError&) {
    const std::string message = describe();
    TORCH_CHECK_INDEX(message.empty(), op, ": ", message);
    throw;
  } catch (const c10::Error&) {
    const std::string message = describe();
    TORCH_CHECK(message.empty(), op, ": ", message);
    throw;
  }
}

}  // namespace gpuopt
