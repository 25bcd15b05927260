// Derivatives of transpose2d in reverse and forward mode. The operator is linear, and its adjoint
// is again transpose2d.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "binding/grad_node.h"
#include "transpose/binding/transpose_ops.h"

namespace gpuopt::transpose {
namespace {

using namespace autograd_names;

struct Transpose2DBackward : torch::autograd::Node {
  std::string name() const override { return "GpuoptTranspose2DBackward"; }

  variable_list apply(variable_list&& grads) override {
    return {grads[0].defined() ? gpuopt::transpose2d(grads[0]) : Tensor()};
  }
};

Tensor transpose2d_autograd(c10::DispatchKeySet keys, const Tensor& self) {
  NodePtr<Transpose2DBackward> node;
  if (torch::autograd::compute_requires_grad(self)) {
    node = make_node<Transpose2DBackward>();
    node->set_next_edges(torch::autograd::collect_next_edges(self));
  }
  Tensor result = below_autograd(ops::transpose2d(), keys, self);
  if (node) set_history(result, node);
  if (has_tangent(self)) {
    set_tangent(result, gpuopt::transpose2d(tangent_of(self)));
  }
  return result;
}

TORCH_LIBRARY_IMPL(gpuopt, Autograd, m) { m.impl("transpose2d", transpose2d_autograd); }

}  // namespace
}  // namespace gpuopt::transpose
