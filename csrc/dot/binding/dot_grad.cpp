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
  static constexpr bool kVdot = std::is_same_v<Op, Vdot>;

  explicit DotBackward(const Op& op) : ProductNode(op.self, op.other) {
    save_factors(op.self, op.other);
  }
  std::string name() const override {
    if (kVdot) return "GpuoptVdotBackward";
    if (std::is_same_v<Op, DotRows>) return "GpuoptDotRowsBackward";
    return std::is_same_v<Op, Dot> ? "GpuoptDotBackward" : "GpuoptDotFastAtomicBackward";
  }

  variable_list gradients(const Tensor& of_result) override {
    variable_list inputs(2);
    const Tensor grad = of_result.unsqueeze(-1);
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

  static Tensor tangent(const Op& op, const Tensor&) {
    using TangentOp = std::conditional_t<std::is_same_v<Op, DotFastAtomic>, Dot, Op>;
    return tangent_of_product(op.self, op.other, [](const Tensor& self, const Tensor& other) {
      return call(TangentOp{self, other});
    });
  }
};

TORCH_LIBRARY_IMPL(gpuopt, Autograd, m) {
  impl_autograd<Dot, DotBackward<Dot>>(m);
  impl_autograd<Vdot, DotBackward<Vdot>>(m);
  impl_autograd<DotRows, DotBackward<DotRows>>(m);
  impl_autograd<DotFastAtomic, DotBackward<DotFastAtomic>>(m);
  impl_out_without_derivatives<Dot, Vdot>(m);
}

TORCH_LIBRARY_IMPL(gpuopt, ADInplaceOrView, m) { impl_counted<Out<Dot>, Out<Vdot>>(m); }

}  // namespace
}  // namespace gpuopt::dot
