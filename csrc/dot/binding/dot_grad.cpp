// Derivatives of the dot products in reverse and forward mode, and the autograd rules of out=.
// Backward formulas call differentiable operators, so higher derivatives exist, too.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "binding/out_variant.h"
#include "dot/binding/dot_ops.h"
#include "elementwise/binding/elementwise_ops.h"

namespace gpuopt::dot {
namespace {

using namespace autograd_names;

// Base of the backward nodes. The result's gradient gets a last dimension of size 1, so that it
// broadcasts to the operands.
struct ProductBackward : ProductNode {
  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    variable_list inputs(2);
    if (!grads[0].defined()) return inputs;
    const Tensor grad = grads[0].unsqueeze(-1);
    if (task_should_compute_output(0)) inputs[0] = for_self(grad, second_.unpack());
    if (task_should_compute_output(1)) inputs[1] = for_other(grad, first_.unpack());
    return inputs;
  }

 protected:
  virtual Tensor for_self(const Tensor& grad, const Tensor& other) const = 0;
  virtual Tensor for_other(const Tensor& grad, const Tensor& self) const = 0;
};

// d(x . y) = y dx + x dy, so each operand's gradient is the result's times the conjugate of the
// other operand.
struct DotBackward : ProductBackward {
  std::string name() const override { return "GpuoptDotBackward"; }

 protected:
  Tensor for_self(const Tensor& grad, const Tensor& other) const override {
    return gpuopt::mul(grad, other.conj());
  }
  Tensor for_other(const Tensor& grad, const Tensor& self) const override {
    return gpuopt::mul(grad, self.conj());
  }
};

struct DotRowsBackward : DotBackward {
  std::string name() const override { return "GpuoptDotRowsBackward"; }
};

struct DotFastAtomicBackward : DotBackward {
  std::string name() const override { return "GpuoptDotFastAtomicBackward"; }
};

// conj(x) . y is not holomorphic in x, so x's gradient uses the conjugate of the result's gradient.
struct VdotBackward : ProductBackward {
  std::string name() const override { return "GpuoptVdotBackward"; }

 protected:
  Tensor for_self(const Tensor& grad, const Tensor& other) const override {
    return gpuopt::mul(grad.conj(), other);
  }
  Tensor for_other(const Tensor& grad, const Tensor& self) const override {
    return gpuopt::mul(grad, self);
  }
};

// The product rule, for the tangents that exist.
template <typename Op>
Tensor product_tangent(const Op& op, const Tensor& self, const Tensor& other) {
  Tensor by_self, by_other;
  if (has_tangent(self)) by_self = op.call(tangent_of(self), primal_of(other));
  if (has_tangent(other)) by_other = op.call(primal_of(self), tangent_of(other));
  if (!by_self.defined()) return by_other;
  return by_other.defined() ? at::add(by_self, by_other) : by_self;
}

// Calls `op` and attaches its derivatives. `tangent_op` computes the products of the tangents.
template <typename Node, typename Op>
Tensor product_autograd(const Op& op, const Op& tangent_op, DispatchKeySet keys, const Tensor& self,
                        const Tensor& other) {
  NodePtr<Node> node;
  if (compute_requires_grad(self, other)) {
    node = make_node<Node>();
    node->set_next_edges(collect_next_edges(self, other));
    node->save_factors(self, other);
  }
  Tensor result = below_autograd(op, keys, self, other);
  if (node) set_history(result, node);
  if (has_tangent(self) || has_tangent(other)) {
    set_tangent(result, product_tangent(tangent_op, self, other));
  }
  return result;
}

Tensor dot_autograd(DispatchKeySet keys, const Tensor& self, const Tensor& tensor) {
  return product_autograd<DotBackward>(ops::dot(), ops::dot(), keys, self, tensor);
}

Tensor vdot_autograd(DispatchKeySet keys, const Tensor& self, const Tensor& other) {
  return product_autograd<VdotBackward>(ops::vdot(), ops::vdot(), keys, self, other);
}

Tensor dot_rows_autograd(DispatchKeySet keys, const Tensor& self, const Tensor& tensor) {
  return product_autograd<DotRowsBackward>(ops::dot_rows(), ops::dot_rows(), keys, self, tensor);
}

Tensor dot_fast_atomic_autograd(DispatchKeySet keys, const Tensor& self, const Tensor& tensor) {
  return product_autograd<DotFastAtomicBackward>(ops::dot_fast_atomic(), ops::dot(), keys, self,
                                                 tensor);
}

TORCH_LIBRARY_IMPL(gpuopt, Autograd, m) {
  m.impl("dot", dot_autograd);
  m.impl("dot.out", WritingOp<ops::dot_out>::without_derivatives);
  m.impl("vdot", vdot_autograd);
  m.impl("vdot.out", WritingOp<ops::vdot_out>::without_derivatives);
  m.impl("dot_rows", dot_rows_autograd);
  m.impl("dot_fast_atomic", dot_fast_atomic_autograd);
}

TORCH_LIBRARY_IMPL(gpuopt, ADInplaceOrView, m) {
  m.impl("dot.out", WritingOp<ops::dot_out>::counted);
  m.impl("vdot.out", WritingOp<ops::vdot_out>::counted);
}

}  // namespace
}  // namespace gpuopt::dot
