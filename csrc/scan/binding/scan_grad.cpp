// Derivatives of scans in reverse and forward mode, and the autograd rules of out= and in-place
// forms. A cumulative sum is linear, and its adjoint is the sum in the other direction.
#include "binding/writing.h"
#include "scan/binding/scan_check.h"

namespace gpuopt::scan {
namespace {

using at::ScalarType;
using namespace autograd_names;

struct CumsumBackward : torch::autograd::Node {
  explicit CumsumBackward(const Cumsum& op)
      : dim_(checked(op).dim),
        dtype_(op.self.scalar_type()),
        reverse_(op.reverse),
        exclusive_(op.exclusive) {}
  std::string name() const override { return "GpuoptCumsumBackward"; }

  variable_list apply(variable_list&& grads) override {
    if (!grads[0].defined()) return {Tensor()};
    Tensor grad = grads[0];
    if (grad.is_complex() && !at::isComplexType(dtype_)) grad = at::real(grad);
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
  return linear_autograd<CumsumBackward>(op, keys);
}

Tensor& cumsum_inplace_autograd(const Inplace<Cumsum>& call, DispatchKeySet keys) {
  Tensor& self = call.self;
  const bool requires_grad = compute_requires_grad(self);
  torch::autograd::check_inplace(self, requires_grad);
  NodePtr<CumsumBackward> node;
  if (requires_grad) {
    node = make_node<CumsumBackward>(checked_inplace(call));
    node->set_next_edges(collect_next_edges(self));
  }
  Tensor tangent;
  if (has_tangent(self)) {
    const Cumsum& op = call.in;
    tangent =
        gpuopt::cumsum(tangent_of(self), op.dim, self.scalar_type(), op.reverse, op.exclusive);
  }
  below_autograd(call, keys);
  if (node) torch::autograd::rebase_history(self, node);
  if (tangent.defined()) set_inplace_tangent(self, tangent);
  return self;
}

TORCH_LIBRARY_IMPL(gpuopt, Autograd, m) {
  impl<Cumsum, cumsum_autograd>(m);
  impl_out_without_derivatives<Cumsum>(m);
  impl<Inplace<Cumsum>, cumsum_inplace_autograd>(m);
}

TORCH_LIBRARY_IMPL(gpuopt, ADInplaceOrView, m) { impl_counted<Out<Cumsum>, Inplace<Cumsum>>(m); }

}  // namespace
}  // namespace gpuopt::scan
