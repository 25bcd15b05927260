// Derivatives of the dot products: reverse mode, forward mode, and what out= owes to autograd.
// Backward formulas call differentiable operators, so higher derivatives follow.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <mutex>

#include "binding/grad_node.h"
#include "dot/dot_ops.h"
#include "elementwise/elementwise_ops.h"

namespace gpuopt::dot {
namespace {

using at::Tensor;
using c10::DispatchKeySet;
using torch::autograd::collect_next_edges;
using torch::autograd::compute_requires_grad;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// Keeps each operand for the other one's gradient. A gradient of the result, with a dimension of
// size 1 in the end, broadcasts to the operands.
struct ProductBackward : torch::autograd::Node {
  void save(const Tensor& self, const Tensor& other) {
    if (next_edge(1).is_valid()) self_ = SavedVariable(self, /*is_output=*/false);
    if (next_edge(0).is_valid()) other_ = SavedVariable(other, /*is_output=*/false);
  }

  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    variable_list inputs(2);
    if (!grads[0].defined()) return inputs;
    const Tensor grad = grads[0].unsqueeze(-1);
    if (task_should_compute_output(0)) inputs[0] = for_self(grad, other_.unpack());
    if (task_should_compute_output(1)) inputs[1] = for_other(grad, self_.unpack());
    return inputs;
  }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    self_.reset_data();
    other_.reset_data();
  }

 protected:
  virtual Tensor for_self(const Tensor& grad, const Tensor& other) const = 0;
  virtual Tensor for_other(const Tensor& grad, const Tensor& self) const = 0;

 private:
  SavedVariable self_, other_;
};

// d(x . y) = y' dx + x' dy, with ' the conjugate.
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

// x' . y is not holomorphic in x: its gradient takes the conjugate of the result's.
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

// ---------------------------------------------------------------- functional operators

// The product rule, of those tangents that exist.
template <typename Op>
Tensor product_tangent(const Op& op, const Tensor& self, const Tensor& other) {
  Tensor by_self, by_other;
  if (has_tangent(self)) by_self = op.call(tangent_of(self), primal_of(other));
  if (has_tangent(other)) by_other = op.call(primal_of(self), tangent_of(other));
  if (!by_self.defined()) return by_other;
  return by_other.defined() ? at::add(by_self, by_other) : by_self;
}

// Tangents are products by `tangent_op`.
template <typename Node, typename Op>
Tensor product_autograd(const Op& op, const Op& tangent_op, DispatchKeySet keys, const Tensor& self,
                        const Tensor& other) {
  NodePtr<Node> node;
  if (compute_requires_grad(self, other)) {
    node = make_node<Node>();
    node->set_next_edges(collect_next_edges(self, other));
    node->save(self, other);
  }
  Tensor result;
  {
    at::AutoDispatchBelowADInplaceOrView guard;
    result = op.redispatch(keys & c10::after_autograd_keyset, self, other);
  }
  if (node) set_history(result, node);
  if (has_tangent(self) || has_tangent(other)) {
    result._set_fw_grad(product_tangent(tangent_op, self, other), /*level=*/0,
                        /*is_inplace_op=*/false);
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

// ---------------------------------------------------------------- out=

template <typename Op>
Tensor& out_autograd(const char* name, const Op& op, DispatchKeySet keys, const Tensor& self,
                     const Tensor& other, Tensor& out) {
  if (compute_requires_grad(self, other, out)) torch::autograd::throw_error_out_requires_grad(name);
  TORCH_CHECK_NOT_IMPLEMENTED(!has_tangent(self) && !has_tangent(other) && !has_tangent(out), name,
                              ": out= does not support forward-mode differentiation: expected "
                              "tensors without tangents");
  at::AutoDispatchBelowAutograd guard;
  return op.redispatch(keys & c10::after_autograd_keyset, self, other, out);
}

Tensor& dot_out_autograd(DispatchKeySet keys, const Tensor& self, const Tensor& tensor,
                         Tensor& out) {
  return out_autograd("gpuopt::dot", ops::dot_out(), keys, self, tensor, out);
}

Tensor& vdot_out_autograd(DispatchKeySet keys, const Tensor& self, const Tensor& other,
                          Tensor& out) {
  return out_autograd("gpuopt::vdot", ops::vdot_out(), keys, self, other, out);
}

// The key below Autograd that counts writes, also in no_grad mode.
template <typename Op>
Tensor& out_version(const Op& op, DispatchKeySet keys, const Tensor& self, const Tensor& other,
                    Tensor& out) {
  {
    at::AutoDispatchBelowADInplaceOrView guard;
    op.redispatch(keys & c10::after_ADInplaceOrView_keyset, self, other, out);
  }
  torch::autograd::increment_version(out);
  return out;
}

Tensor& dot_out_version(DispatchKeySet keys, const Tensor& self, const Tensor& tensor,
                        Tensor& out) {
  return out_version(ops::dot_out(), keys, self, tensor, out);
}

Tensor& vdot_out_version(DispatchKeySet keys, const Tensor& self, const Tensor& other,
                         Tensor& out) {
  return out_version(ops::vdot_out(), keys, self, other, out);
}

TORCH_LIBRARY_IMPL(gpuopt, Autograd, m) {
  m.impl("dot", dot_autograd);
  m.impl("dot.out", dot_out_autograd);
  m.impl("vdot", vdot_autograd);
  m.impl("vdot.out", vdot_out_autograd);
  m.impl("dot_rows", dot_rows_autograd);
  m.impl("dot_fast_atomic", dot_fast_atomic_autograd);
}

TORCH_LIBRARY_IMPL(gpuopt, ADInplaceOrView, m) {
  m.impl("dot.out", dot_out_version);
  m.impl("vdot.out", vdot_out_version);
}

}  // namespace
}  // namespace gpuopt::dot
