// Checks the arguments of each form of gpuopt::cumsum. The CUDA, CPU and Meta kernels all call
// these functions. Exceptions have the same types as in torch.cumsum. A checked call has its dim
// from 0, also for an input without dimensions, and the dtype that values are converted to.
#pragma once

#include "binding/check.h"
#include "scan/binding/scan_ops.h"

namespace gpuopt::scan {

inline Cumsum checked(const Cumsum& op) {
  at::ScalarType dtype = op.dtype.value_or(op.self.scalar_type());
  if (!op.dtype.has_value() && at::isIntegralType(dtype, /*includeBool=*/true)) dtype = at::kLong;
  return {op.self, checked_dim(name_of<Cumsum>(), op.dim, op.self.dim()), dtype, op.reverse,
          op.exclusive};
}

// If dtype is not given, values are converted to out's dtype.
inline Cumsum checked_out(const Out<Cumsum>& call) {
  const char* name = name_of<Cumsum>();
  const auto& [op, out] = call;
  TORCH_CHECK(!op.dtype.has_value() || *op.dtype == out.scalar_type(), name,
              ": out must have the dtype given as dtype: expected ", *op.dtype, ", got ",
              out.scalar_type());
  const int64_t dim = checked_dim(name, op.dim, op.self.dim());
  check_device_of(name, {"out", out}, {"input", op.self});
  check_writable(name, {"out", out}, {{"input", op.self}});
  return {op.self, dim, out.scalar_type(), op.reverse, op.exclusive};
}

// Callers check the memory of self afterwards, by check_writable(). ATen refuses a dtype without a
// kernel before it looks at the memory.
inline Cumsum checked_inplace(const Inplace<Cumsum>& call) {
  const char* name = name_of<Inplace<Cumsum>>();
  const auto& [op, self] = call;
  TORCH_CHECK(!op.dtype.has_value() || *op.dtype == self.scalar_type(), name,
              ": dtype must be input's dtype: expected ", self.scalar_type(), ", got ", *op.dtype);
  return {self, checked_dim(name, op.dim, self.dim()), self.scalar_type(), op.reverse,
          op.exclusive};
}

}  // namespace gpuopt::scan
