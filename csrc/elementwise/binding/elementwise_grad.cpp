// Derivatives of the element-wise operators: reverse mode, forward mode, and the autograd rules of
// in-place and out= forms. Backward formulas call differentiable operators, so higher derivatives
// work. Autograd's engine sums a gradient to its input's shape and casts it to the input's dtype.
#include "binding/writing.h"
#include "elementwise/binding/elementwise_ops.h"

namespace gpuopt::elementwise {
namespace {

using namespace autograd_names;

// d(a b + c) = b' da + a' db + dc, with ' the conjugate.
template <typename Op>
struct Backward : ProductNode {
  explicit Backward(const Op& op) : Backward(op, /*overwrites=*/false) {}
  explicit Backward(const Inplace<Op>& call) : Backward(call.in, /*overwrites=*/true) {}
  std::string name() const override { return Op::kNode; }
  void describe_state(NodeState& state) const override { state(is_complex_, number_); }

  variable_list gradients(const Tensor& grad) override {
    variable_list inputs(is_complex_.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!task_should_compute_output(i)) continue;
      inputs[i] = i < kFactors<Op> ? times_other_factor(grad, i) : grad;
      // The gradient of a real input is the real part of what a complex result gives it.
      if (inputs[i].is_complex() && !is_complex_[i]) inputs[i] = at::real(inputs[i]);
    }
    return inputs;
  }

  // The tangent of a result. It must not alias an input's tangent, because in-place operators on
  // the result write to the result's tangent.
  static Tensor tangent(const Op& op, const Tensor& result) {
    const auto inputs = op.inputs();
    Tensor sum;
    const auto add = [&](const Tensor& term) {
      sum = sum.defined() ? call(Axpy{term, sum, 1}) : term;
    };
    const Tensor& first = inputs[0].tensor;
    if constexpr (kHasNumber<Op>) {
      if (has_tangent(first)) add(gpuopt::mul(tangent_of(first), op.number()));
    } else {
      const Tensor& second = inputs[1].tensor;
      if (has_tangent(first)) add(gpuopt::mul(tangent_of(first), primal_of(second)));
      if (has_tangent(second)) add(gpuopt::mul(primal_of(first), tangent_of(second)));
    }
    if constexpr (kInputs<Op> > kFactors<Op>) {
      const Tensor tangent = tangent_of(inputs.back().tensor);
      if (tangent.defined()) add(sum.defined() ? tangent : tangent.clone());
    }
    if (sum.scalar_type() != result.scalar_type()) sum = sum.to(result.scalar_type());
    return sum.expand_symint(result.sym_sizes());
  }
  static Tensor tangent(const Inplace<Op>& call) { return tangent(call.in, call.self); }

 private:
  // `overwrites`: the result overwrites the first factor, whose old value is then copied.
  Backward(const Op& op, bool overwrites) {
    const auto inputs = op.inputs();
    std::apply([&](const auto&... in) { set_next_edges(collect_next_edges(in.tensor...)); },
               inputs);
    for (size_t i = 0; i < inputs.size(); ++i) is_complex_[i] = inputs[i].tensor.is_complex();
    if constexpr (kHasNumber<Op>) {
      number_ = op.number();
    } else {
      const Tensor &first = inputs[0].tensor, &second = inputs[1].tensor;
      save_factors(overwrites && compute_requires_grad(second) ? first.clone() : first, second);
    }
  }

  Tensor times_other_factor(const Tensor& grad, size_t factor) {
    if constexpr (kHasNumber<Op>) {
      const bool one = !number_.isSymbolic() && number_.equal(1);
      return one ? grad : gpuopt::mul(grad, number_.conj());
    } else {
      return gpuopt::mul(grad, (factor == 0 ? second_ : first_).unpack().conj());
    }
  }

  std::array<bool, kInputs<Op>> is_complex_;
  at::Scalar number_;
};

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  Ops::for_each([&]<typename Op>() { impl<Op, Grad<Backward<Op>>>(m); });
  impl<Inplace<MulTensor>, Grad<Backward<MulTensor>>>(m);
  impl<Inplace<MulScalar>, Grad<Backward<MulScalar>>>(m);
}

}  // namespace
}  // namespace gpuopt::elementwise
