// Derivatives of scans in reverse and forward mode, and the autograd rules of out= and in-place
// forms. A cumulative sum is linear, and its adjoint is the sum in the other direction.
#include "binding/writing.h"
#include "scan/binding/scan_check.h"

namespace gpuopt::scan {
namespace {

using at::ScalarType;
using namespace autograd_names;

struct CumsumBackward : GradNode {
  explicit CumsumBackward(const Cumsum& op)
      : GradNode(op.self),
        dim_(checked(op).dim),
        dtype_(op.self.scalar_type()),
        reverse_(op.reverse),
        exclusive_(op.exclusive) {}
  explicit CumsumBackward(const Inplace<Cumsum>& call) : CumsumBackward(checked_inplace(call)) {}
  std::string name() const override { return "GpuoptCumsumBackward"; }

  variable_list gradients(const Tensor& of_result) override {
    const bool drops = of_result.is_complex() && !at::isComplexType(dtype_);
    const Tensor grad = drops ? at::real(of_result) : of_result;
    // Converted first, as in ATen, so that second derivatives round as ATen's do.
    return {gpuopt::cumsum(grad.to(dtype_), dim_, dtype_, !reverse_, exclusive_)};
  }

 private:
  int64_t dim_;
  ScalarType dtype_;  // of self
  bool reverse_, exclusive_;
};

Tensor cumsum_autograd(const Cumsum& op, DispatchKeySet keys) {
  if (compute_requires_grad(op.self) || has_tangent(op.self)) {
    TORCH_CHECK(!op.dtype.has_value() || torch::autograd::isDifferentiableType(*op.dtype),
                "gpuopt::cumsum: dtype must be differentiable when input is: expected a "
                "floating-point or complex dtype for an input that requires a gradient or has a "
                "tangent, got ",
                op.dtype.value_or(op.self.scalar_type()));
  }
  return differentiate<CumsumBackward>(op, keys);
}

TORCH_LIBRARY_IMPL(gpuopt, Autograd, m) {
  impl<Cumsum, cumsum_autograd>(m);
  impl_out_without_derivatives<Cumsum>(m);
  impl_inplace_autograd<Cumsum, CumsumBackward>(m);
}

TORCH_LIBRARY_IMPL(gpuopt, ADInplaceOrView, m) { impl_counted<Out<Cumsum>, Inplace<Cumsum>>(m); }

}  // namespace
}  // namespace gpuopt::scan
