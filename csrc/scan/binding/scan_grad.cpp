// Derivatives of scans in reverse and forward mode, and the autograd rules of out= and in-place
// forms. A cumulative sum is linear, and its adjoint is the sum in the other direction.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "binding/out_variant.h"
#include "scan/binding/scan_check.h"
#include "scan/binding/scan_ops.h"

namespace gpuopt::scan {
namespace {

using at::ScalarType;
using DTypeOption = std::optional<ScalarType>;
using namespace autograd_names;

struct CumsumBackward : torch::autograd::Node {
  CumsumBackward(const Scan& scan, ScalarType dtype) : scan_(scan), dtype_(dtype) {}
  std::string name() const override { return "GpuoptCumsumBackward"; }

  variable_list apply(variable_list&& grads) override {
    if (!grads[0].defined()) return {Tensor()};
    Tensor grad = grads[0];
    if (grad.is_complex() && !at::isComplexType(dtype_)) grad = at::real(grad);
    // Converted first, as in ATen, so that second derivatives round as ATen's do.
    return {gpuopt::cumsum(grad.to(dtype_), scan_.dim, dtype_, !scan_.reverse, scan_.exclusive)};
  }

 private:
  Scan scan_;
  ScalarType dtype_;  // of self
};

NodePtr<CumsumBackward> make_backward(const Tensor& self, const Scan& scan) {
  auto node = make_node<CumsumBackward>(scan, self.scalar_type());
  node->set_next_edges(collect_next_edges(self));
  return node;
}

// Whether self has a gradient or a tangent. If so, the result's dtype must have derivatives.
bool is_differentiated(const Tensor& self, DTypeOption dtype) {
  if (!compute_requires_grad(self) && !has_tangent(self)) return false;
  TORCH_CHECK(!dtype.has_value() || torch::autograd::isDifferentiableType(*dtype),
              "gpuopt::cumsum: dtype must be differentiable when self is: expected a "
              "floating-point or complex dtype for a self that requires a gradient or has a "
              "tangent, got ",
              dtype.value_or(self.scalar_type()));
  return true;
}

Tensor cumsum_autograd(DispatchKeySet keys, const Tensor& self, int64_t dim, DTypeOption dtype,
                       bool reverse, bool exclusive) {
  NodePtr<CumsumBackward> node;
  if (is_differentiated(self, dtype) && compute_requires_grad(self)) {
    node = make_backward(self, check_cumsum(self, dim, dtype, reverse, exclusive));
  }
  Tensor result = below_autograd(ops::cumsum(), keys, self, dim, dtype, reverse, exclusive);
  if (node) set_history(result, node);
  if (has_tangent(self)) {
    set_tangent(result, gpuopt::cumsum(tangent_of(self), dim, dtype, reverse, exclusive));
  }
  return result;
}

Tensor& cumsum_inplace_autograd(DispatchKeySet keys, Tensor& self, int64_t dim, DTypeOption dtype,
                                bool reverse, bool exclusive) {
  const bool requires_grad = compute_requires_grad(self);
  torch::autograd::check_inplace(self, requires_grad);
  NodePtr<CumsumBackward> node;
  if (requires_grad) {
    node = make_backward(self, check_cumsum_inplace(self, dim, dtype, reverse, exclusive));
  }
  Tensor tangent;
  if (has_tangent(self)) {
    tangent = gpuopt::cumsum(tangent_of(self), dim, self.scalar_type(), reverse, exclusive);
  }
  {
    at::AutoDispatchBelowAutograd guard;
    ops::cumsum_inplace().redispatch(keys & c10::after_autograd_keyset, self, dim, dtype, reverse,
                                     exclusive);
  }
  if (node) torch::autograd::rebase_history(self, node);
  if (tangent.defined()) {
    // The tangent that self has is overwritten, since views of self may share it.
    self._set_fw_grad(tangent_of(self).copy_(tangent), /*level=*/0, /*is_inplace_op=*/true);
  }
  return self;
}

TORCH_LIBRARY_IMPL(gpuopt, Autograd, m) {
  m.impl("cumsum", cumsum_autograd);
  m.impl("cumsum.out", WritingOp<ops::cumsum_out>::without_derivatives);
  m.impl("cumsum_", cumsum_inplace_autograd);
}

TORCH_LIBRARY_IMPL(gpuopt, ADInplaceOrView, m) {
  m.impl("cumsum.out", WritingOp<ops::cumsum_out>::counted);
  m.impl("cumsum_", WritingOp<ops::cumsum_inplace>::counted);
}

}  // namespace
}  // namespace gpuopt::scan
