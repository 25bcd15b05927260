// Checks the arguments of each operator form. The CUDA, CPU and Meta kernels all call these
// functions. Exceptions have the same types as in torch.cumsum.
#pragma once

#include <optional>

#include "binding/check.h"

namespace gpuopt::scan {

// A checked call. Values are converted to `dtype` before they are scanned.
struct Scan {
  int64_t dim;  // from 0; 0 if self has no dimensions
  at::ScalarType dtype;
  bool reverse, exclusive;
};

inline int64_t wrap_dim(const char* op, const at::Tensor& self, int64_t dim) {
  const int64_t count = self.dim() == 0 ? 1 : self.dim();  // 0-d tensors accept 0 and -1
  TORCH_CHECK_INDEX(-count <= dim && dim < count, op,
                    ": dim must be a dimension of self: expected a value from ", -count, " to ",
                    count - 1, ", got ", dim);
  return dim < 0 ? dim + count : dim;
}

inline Scan check_cumsum(const at::Tensor& self, int64_t dim, std::optional<at::ScalarType> dtype,
                         bool reverse, bool exclusive) {
  at::ScalarType result = dtype.value_or(self.scalar_type());
  if (!dtype.has_value() && at::isIntegralType(result, /*includeBool=*/true)) result = at::kLong;
  return {wrap_dim("gpuopt::cumsum", self, dim), result, reverse, exclusive};
}

// If dtype is not given, values are converted to out's dtype.
inline Scan check_cumsum_out(const at::Tensor& self, int64_t dim,
                             std::optional<at::ScalarType> dtype, bool reverse, bool exclusive,
                             const at::Tensor& out) {
  constexpr const char* op = "gpuopt::cumsum";
  TORCH_CHECK(!dtype.has_value() || *dtype == out.scalar_type(), op,
              ": out must have the dtype given as dtype: expected ", *dtype, ", got ",
              out.scalar_type());
  const Scan scan{wrap_dim(op, self, dim), out.scalar_type(), reverse, exclusive};
  TORCH_CHECK(out.device() == self.device(), op, ": out must be on the device of self: expected ",
              self.device(), ", got ", out.device());
  check_writable(op, {"out", out}, {{"self", self}});
  return scan;
}

// Callers check the memory of self afterwards, by check_writable(). ATen refuses a dtype without a
// kernel before it looks at the memory.
inline Scan check_cumsum_inplace(const at::Tensor& self, int64_t dim,
                                 std::optional<at::ScalarType> dtype, bool reverse,
                                 bool exclusive) {
  constexpr const char* op = "gpuopt::cumsum_";
  TORCH_CHECK(!dtype.has_value() || *dtype == self.scalar_type(), op,
              ": dtype must be self's dtype: expected ", self.scalar_type(), ", got ", *dtype);
  return {wrap_dim(op, self, dim), self.scalar_type(), reverse, exclusive};
}

}  // namespace gpuopt::scan
