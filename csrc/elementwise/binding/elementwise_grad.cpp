// Derivatives of the element-wise operators: reverse mode, forward mode, and the autograd duties of
// in-place and out= variants. Backward formulas call differentiable operators, so higher
// derivatives work. Autograd's engine sums a gradient to its input's shape and casts it to the
// input's dtype.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "binding/out_variant.h"
#include "elementwise/binding/elementwise_ops.h"

namespace gpuopt::elementwise {
namespace {

using namespace autograd_names;

// The gradient of a real input is the real part of the gradient that a complex result gives it.
Tensor for_input(const Tensor& grad, bool input_is_complex) {
  return grad.is_complex() && !input_is_complex ? at::real(grad) : grad;
}

// d(a b) = b' da + a' db, with ' the conjugate.
struct MulBackward : ProductNode {
  std::string name() const override { return "GpuoptMulBackward"; }

  void save(const Tensor& self, const Tensor& other) {
    self_is_complex_ = self.is_complex();
    other_is_complex_ = other.is_complex();
    save_factors(self, other);
  }

  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    variable_list inputs(2);
    if (!grads[0].defined()) return inputs;
    if (task_should_compute_output(0)) {
      inputs[0] = for_input(gpuopt::mul(grads[0], second_.unpack().conj()), self_is_complex_);
    }
    if (task_should_compute_output(1)) {
      inputs[1] = for_input(gpuopt::mul(grads[0], first_.unpack().conj()), other_is_complex_);
    }
    return inputs;
  }

 private:
  bool self_is_complex_ = false, other_is_complex_ = false;
};

struct MulScalarBackward : torch::autograd::Node {
  MulScalarBackward(const Tensor& self, at::Scalar other)
      : other_(std::move(other)), self_is_complex_(self.is_complex()) {}
  std::string name() const override { return "GpuoptMulScalarBackward"; }

  variable_list apply(variable_list&& grads) override {
    if (!grads[0].defined()) return {Tensor()};
    return {for_input(gpuopt::mul(grads[0], other_.conj()), self_is_complex_)};
  }

 private:
  at::Scalar other_;
  bool self_is_complex_;
};

// d(alpha x + y) = alpha' dx + dy
struct AxpyBackward : torch::autograd::Node {
  AxpyBackward(const Tensor& x, const Tensor& y, at::Scalar alpha)
      : alpha_(std::move(alpha)), x_is_complex_(x.is_complex()), y_is_complex_(y.is_complex()) {}
  std::string name() const override { return "GpuoptAxpyBackward"; }

  variable_list apply(variable_list&& grads) override {
    variable_list inputs(2);
    if (!grads[0].defined()) return inputs;
    if (task_should_compute_output(0)) {
      const bool one = !alpha_.isSymbolic() && alpha_.equal(1);
      inputs[0] = for_input(one ? grads[0] : gpuopt::mul(grads[0], alpha_.conj()), x_is_complex_);
    }
    if (task_should_compute_output(1)) inputs[1] = for_input(grads[0], y_is_complex_);
    return inputs;
  }

 private:
  at::Scalar alpha_;
  bool x_is_complex_, y_is_complex_;
};

// d(a b + c) = b' da + a' db + dc
struct FmaBackward : ProductNode {
  std::string name() const override { return "GpuoptFmaBackward"; }

  void save(const Tensor& a, const Tensor& b, const Tensor& c) {
    a_is_complex_ = a.is_complex();
    b_is_complex_ = b.is_complex();
    c_is_complex_ = c.is_complex();
    save_factors(a, b);
  }

  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    variable_list inputs(3);
    if (!grads[0].defined()) return inputs;
    if (task_should_compute_output(0)) {
      inputs[0] = for_input(gpuopt::mul(grads[0], second_.unpack().conj()), a_is_complex_);
    }
    if (task_should_compute_output(1)) {
      inputs[1] = for_input(gpuopt::mul(grads[0], first_.unpack().conj()), b_is_complex_);
    }
    if (task_should_compute_output(2)) inputs[2] = for_input(grads[0], c_is_complex_);
    return inputs;
  }

 private:
  bool a_is_complex_ = false, b_is_complex_ = false, c_is_complex_ = false;
};

// Sums the terms of a tangent and gives the sum the result's shape and dtype. `own` is the tangent
// of an input, which the result's tangent must not alias: in-place operators on the result write to
// the result's tangent.
Tensor sum_tangents(const Tensor& result, std::initializer_list<Tensor> products,
                    const Tensor& own = {}) {
  Tensor sum;
  for (const Tensor& term : products) {
    if (term.defined()) sum = sum.defined() ? gpuopt::axpy(term, sum) : term;
  }
  if (own.defined()) sum = sum.defined() ? gpuopt::axpy(own, sum) : own.clone();
  if (sum.scalar_type() != result.scalar_type()) sum = sum.to(result.scalar_type());
  return sum.expand_symint(result.sym_sizes());
}

Tensor mul_tangent(const Tensor& result, const Tensor& self, const Tensor& other) {
  Tensor by_self, by_other;
  if (has_tangent(self)) by_self = gpuopt::mul(tangent_of(self), primal_of(other));
  if (has_tangent(other)) by_other = gpuopt::mul(primal_of(self), tangent_of(other));
  return sum_tangents(result, {by_self, by_other});
}

// ---------------------------------------------------------------- functional operators

Tensor mul_autograd(DispatchKeySet keys, const Tensor& self, const Tensor& other) {
  NodePtr<MulBackward> node;
  if (compute_requires_grad(self, other)) {
    node = make_node<MulBackward>();
    node->set_next_edges(collect_next_edges(self, other));
    node->save(self, other);
  }
  Tensor result = below_autograd(ops::mul_tensor(), keys, self, other);
  if (node) set_history(result, node);
  if (has_tangent(self) || has_tangent(other)) {
    set_tangent(result, mul_tangent(result, self, other));
  }
  return result;
}

Tensor mul_scalar_autograd(DispatchKeySet keys, const Tensor& self, const at::Scalar& other) {
  NodePtr<MulScalarBackward> node;
  if (compute_requires_grad(self)) {
    node = make_node<MulScalarBackward>(self, other);
    node->set_next_edges(collect_next_edges(self));
  }
  Tensor result = below_autograd(ops::mul_scalar(), keys, self, other);
  if (node) set_history(result, node);
  if (has_tangent(self)) {
    set_tangent(result, gpuopt::mul(tangent_of(self), other));
  }
  return result;
}

Tensor axpy_autograd(DispatchKeySet keys, const Tensor& x, const Tensor& y,
                     const at::Scalar& alpha) {
  NodePtr<AxpyBackward> node;
  if (compute_requires_grad(x, y)) {
    node = make_node<AxpyBackward>(x, y, alpha);
    node->set_next_edges(collect_next_edges(x, y));
  }
  Tensor result = below_autograd(ops::axpy(), keys, x, y, alpha);
  if (node) set_history(result, node);
  if (has_tangent(x) || has_tangent(y)) {
    Tensor by_x, by_y;
    if (has_tangent(x)) by_x = gpuopt::mul(tangent_of(x), alpha);
    if (has_tangent(y)) by_y = tangent_of(y);
    set_tangent(result, sum_tangents(result, {by_x}, by_y));
  }
  return result;
}

Tensor fma_autograd(DispatchKeySet keys, const Tensor& a, const Tensor& b, const Tensor& c) {
  NodePtr<FmaBackward> node;
  if (compute_requires_grad(a, b, c)) {
    node = make_node<FmaBackward>();
    node->set_next_edges(collect_next_edges(a, b, c));
    node->save(a, b, c);
  }
  Tensor result = below_autograd(ops::fma(), keys, a, b, c);
  if (node) set_history(result, node);
  if (has_tangent(a) || has_tangent(b) || has_tangent(c)) {
    Tensor by_a, by_b, by_c;
    if (has_tangent(a)) by_a = gpuopt::mul(tangent_of(a), primal_of(b));
    if (has_tangent(b)) by_b = gpuopt::mul(primal_of(a), tangent_of(b));
    if (has_tangent(c)) by_c = tangent_of(c);
    set_tangent(result, sum_tangents(result, {by_a, by_b}, by_c));
  }
  return result;
}

// ---------------------------------------------------------------- in-place

// Overwrites a tangent that self already has, because views of self may share it.
void set_inplace_tangent(const Tensor& self, const Tensor& tangent) {
  if (!tangent.defined()) return;
  const Tensor own = tangent_of(self);
  self._set_fw_grad(own.defined() ? own.copy_(tangent) : tangent, /*level=*/0,
                    /*is_inplace_op=*/true);
}

Tensor& mul_inplace_autograd(DispatchKeySet keys, Tensor& self, const Tensor& other) {
  const bool requires_grad = compute_requires_grad(self, other);
  torch::autograd::check_inplace(self, requires_grad);
  NodePtr<MulBackward> node;
  if (requires_grad) {
    node = make_node<MulBackward>();
    node->set_next_edges(collect_next_edges(self, other));
    // The product overwrites self, and other's gradient needs the old value.
    node->save(compute_requires_grad(other) ? self.clone() : self, other);
  }
  Tensor tangent;
  if (has_tangent(self) || has_tangent(other)) tangent = mul_tangent(self, self, other);
  {
    at::AutoDispatchBelowAutograd guard;
    ops::mul_inplace_tensor().redispatch(keys & c10::after_autograd_keyset, self, other);
  }
  if (node) torch::autograd::rebase_history(self, node);
  set_inplace_tangent(self, tangent);
  return self;
}

Tensor& mul_inplace_scalar_autograd(DispatchKeySet keys, Tensor& self, const at::Scalar& other) {
  const bool requires_grad = compute_requires_grad(self);
  torch::autograd::check_inplace(self, requires_grad);
  NodePtr<MulScalarBackward> node;
  if (requires_grad) {
    node = make_node<MulScalarBackward>(self, other);
    node->set_next_edges(collect_next_edges(self));
  }
  Tensor tangent;
  if (has_tangent(self)) tangent = gpuopt::mul(tangent_of(self), other);
  {
    at::AutoDispatchBelowAutograd guard;
    ops::mul_inplace_scalar().redispatch(keys & c10::after_autograd_keyset, self, other);
  }
  if (node) torch::autograd::rebase_history(self, node);
  set_inplace_tangent(self, tangent);
  return self;
}

TORCH_LIBRARY_IMPL(gpuopt, Autograd, m) {
  m.impl("mul.Tensor", mul_autograd);
  m.impl("mul.Scalar", mul_scalar_autograd);
  m.impl("mul.out", WritingOp<ops::mul_out>::without_derivatives);
  m.impl("mul.Scalar_out", WritingOp<ops::mul_scalar_out>::without_derivatives);
  m.impl("mul_.Tensor", mul_inplace_autograd);
  m.impl("mul_.Scalar", mul_inplace_scalar_autograd);
  m.impl("axpy", axpy_autograd);
  m.impl("fma", fma_autograd);
}

TORCH_LIBRARY_IMPL(gpuopt, ADInplaceOrView, m) {
  m.impl("mul.out", WritingOp<ops::mul_out>::counted);
  m.impl("mul.Scalar_out", WritingOp<ops::mul_scalar_out>::counted);
  m.impl("mul_.Tensor", WritingOp<ops::mul_inplace_tensor>::counted);
  m.impl("mul_.Scalar", WritingOp<ops::mul_inplace_scalar>::counted);
}

}  // namespace
}  // namespace gpuopt::elementwise
