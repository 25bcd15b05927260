// Derivatives of the dot products in reverse and forward mode, and the autograd rules of out=.
// Backward formulas call differentiable operators, so higher derivatives exist, too.
#include "binding/writing.h"
#include "dot/binding/dot_ops.h"
#include "elementwise/binding/elementwise_ops.h"

namespace gpuopt::dot {
namespace {

using namespace autograd_names;

// Each operand's gradient is the result's times the other operand. The result's gradient gets a
// last dimension of size 1, so that it broadcasts to the operands.
//   dot:   d(x . y) = y dx + x dy, so the other operand is conjugated.
//   vdot:  conj(x) . y is not holomorphic in x, so x's gradient takes the conjugate of the
//   result's.
template <typename Op>
struct DotBackward : ProductNode {
  std::string name() const override {
    if (std::is_same_v<Op, Vdot>) return "GpuoptVdotBackward";
    if (std::is_same_v<Op, DotRows>) return "GpuoptDotRowsBackward";
    return std::is_same_v<Op, Dot> ? "GpuoptDotBackward" : "GpuoptDotFastAtomicBackward";
  }

  variable_list apply(variable_list&& grads) override {
    constexpr bool kVdot = std::is_same_v<Op, Vdot>;
    std::lock_guard<std::mutex> lock(mutex_);
    variable_list inputs(2);
    if (!grads[0].defined()) return inputs;
    const Tensor grad = grads[0].unsqueeze(-1);
    if (task_should_compute_output(0)) {
      const Tensor other = second_.unpack();
      inputs[0] = kVdot ? gpuopt::mul(grad.conj(), other) : gpuopt::mul(grad, other.conj());
    }
    if (task_should_compute_output(1)) {
      const Tensor self = first_.unpack();
      inputs[1] = gpuopt::mul(grad, kVdot ? self : self.conj());
    }
    return inputs;
  }
};

// The product rule, for the tangents that exist.
template <typename Op>
Tensor product_tangent(const Tensor& self, const Tensor& other) {
  Tensor by_self, by_other;
  if (has_tangent(self)) by_self = call(Op{tangent_of(self), primal_of(other)});
  if (has_tangent(other)) by_other = call(Op{primal_of(self), tangent_of(other)});
  if (!by_self.defined()) return by_other;
  return by_other.defined() ? at::add(by_self, by_other) : by_self;
}

template <typename Op>
Tensor dot_autograd(const Op& op, DispatchKeySet keys) {
  const auto& [self, other] = op;
  NodePtr<DotBackward<Op>> node;
  if (compute_requires_grad(self, other)) {
    node = make_node<DotBackward<Op>>();
    node->set_next_edges(collect_next_edges(self, other));
    node->save_factors(self, other);
  }
  Tensor result = below_autograd(op, keys);
  if (node) set_history(result, node);
  if (has_tangent(self) || has_tangent(other)) {
    using TangentOp = std::conditional_t<std::is_same_v<Op, DotFastAtomic>, Dot, Op>;
    set_tangent(result, product_tangent<TangentOp>(self, other));
  }
  return result;
}

TORCH_LIBRARY_IMPL(gpuopt, Autograd, m) {
  impl<Dot, dot_autograd<Dot>>(m);
  impl<Vdot, dot_autograd<Vdot>>(m);
  impl<DotRows, dot_autograd<DotRows>>(m);
  impl<DotFastAtomic, dot_autograd<DotFastAtomic>>(m);
  impl_out_without_derivatives<Dot, Vdot>(m);
}

TORCH_LIBRARY_IMPL(gpuopt, ADInplaceOrView, m) { impl_counted<Out<Dot>, Out<Vdot>>(m); }

}  // namespace
}  // namespace gpuopt::dot
