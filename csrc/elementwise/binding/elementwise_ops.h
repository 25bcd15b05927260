// The element-wise operators for C++ callers. They call through the dispatcher, so autograd, vmap,
// autocast and tracing see the calls.
#pragma once

#include "binding/op_handle.h"

namespace gpuopt {

namespace ops {
GPUOPT_OP(mul_tensor, "mul", "Tensor", at::Tensor(const at::Tensor&, const at::Tensor&))
GPUOPT_OP(mul_scalar, "mul", "Scalar", at::Tensor(const at::Tensor&, const at::Scalar&))
GPUOPT_OP(mul_out, "mul", "out", at::Tensor&(const at::Tensor&, const at::Tensor&, at::Tensor&))
GPUOPT_OP(mul_scalar_out, "mul", "Scalar_out",
          at::Tensor&(const at::Tensor&, const at::Scalar&, at::Tensor&))
GPUOPT_OP(mul_inplace_tensor, "mul_", "Tensor", at::Tensor&(at::Tensor&, const at::Tensor&))
GPUOPT_OP(mul_inplace_scalar, "mul_", "Scalar", at::Tensor&(at::Tensor&, const at::Scalar&))
GPUOPT_OP(axpy, "axpy", "", at::Tensor(const at::Tensor&, const at::Tensor&, const at::Scalar&))
GPUOPT_OP(fma, "fma", "", at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&))
}  // namespace ops

inline at::Tensor mul(const at::Tensor& self, const at::Tensor& other) {
  return ops::mul_tensor().call(self, other);
}
inline at::Tensor mul(const at::Tensor& self, const at::Scalar& other) {
  return ops::mul_scalar().call(self, other);
}
inline at::Tensor axpy(const at::Tensor& x, const at::Tensor& y, const at::Scalar& alpha = 1) {
  return ops::axpy().call(x, y, alpha);
}
inline at::Tensor fma(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
  return ops::fma().call(a, b, c);
}

}  // namespace gpuopt
