// Derivatives. The gradient is an operator with kernels of its own. Higher derivatives and forward
// mode differentiate formulas of ATen's operators.
#include "binding/grad_node.h"
#include "norm/binding/norm_formula.h"

namespace gpuopt::norm {
namespace {

using namespace autograd_names;

// Whether the gradient of the weight has another dtype than the input.
template <typename Op>
bool has_other_type(const Op& op) {
  return is_given(op.weight) && op.weight->scalar_type() != op.input.scalar_type();
}

// The node of a norm, whose edges are of input, weight, bias and residual. The gradients of input
// and residual are one tensor. Without a residual, the sum is the input.
template <typename Op>
struct RowsNode : GradNode {
  explicit RowsNode(const Op& op)
      : GradNode(op.input, op.weight, bias_of(op), residual_of(op)), dims_(op.dims), eps_(op.eps) {
    if (const TensorOption bias = bias_of(op); is_given(bias)) bias_type_ = bias->scalar_type();
    if (!kHasResidual<Op>) sum_.save(op.input);
    const bool differentiates_sum = next_edge(0).is_valid() || next_edge(3).is_valid();
    if (differentiates_sum || has_other_type(op)) weight_.save(op.weight);
  }
  std::string name() const override {
    return std::string("Gpuopt") + (kHasResidual<Op> ? "Add" : "") +
           (Op::kIsRms ? "RmsNormBackward" : "LayerNormBackward");
  }
  void describe_state(NodeState& state) const override { state(dims_, eps_, bias_type_); }
  void save_result(const typename Op::Result& result) {
    if constexpr (!Op::kIsRms) mean_.save(std::get<1>(result));
    rstd_.save(std::get<Op::kIsRms ? 1 : 2>(result));
    if constexpr (kHasResidual<Op>) sum_.save_result(last_of(result));
  }

  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    const Tensor sum_grad = grads.size() > 1 ? grads[1] : Tensor();
    if (!grads[0].defined()) return {sum_grad, Tensor(), Tensor(), sum_grad};
    const bool wants_sum = task_should_compute_output(0) || task_should_compute_output(3);
    const bool wants_weight = task_should_compute_output(1);
    const Tensor sum = sum_.unpack(), rstd = rstd_.unpack();
    const TensorOption weight = if_defined(weight_.unpack()), other = if_defined(sum_grad);
    if constexpr (Op::kIsRms) {
      const std::array<bool, 2> mask{wants_sum, wants_weight};
      const auto [of_sum, of_weight] =
          call(RmsNormGradients{grads[0], sum, rstd, weight, dims_, eps_, mask, other});
      return {of_sum, of_weight, Tensor(), of_sum};
    } else {
      const std::array<bool, 3> mask{wants_sum, wants_weight, task_should_compute_output(2)};
      const auto [of_sum, of_weight, of_bias] = call(LayerNormGradients{
          grads[0], sum, mean_.unpack(), rstd, weight, dims_, eps_, mask, other});
      return {of_sum, of_weight, mask[2] ? of_bias.to(bias_type_) : Tensor(), of_sum};
    }
  }
  static Tensor tangent(const Op& op, const typename Op::Result&) { return tangent_by_aten(op); }

  static const Tensor& last_of(const typename Op::Result& result) {
    return std::get<std::tuple_size_v<typename Op::Result> - 1>(result);
  }

 private:
  int64_t dims_;
  double eps_;
  at::ScalarType bias_type_ = at::kFloat;
  Saved sum_{this}, weight_{this}, mean_{this}, rstd_{this};
};

// The statistics are not differentiable.
template <typename Op>
typename Op::Result rows_autograd(const Op& op, DispatchKeySet keys) {
  using Node = RowsNode<Op>;
  if (requires_grad(op) || has_tangents(op)) check(op);
  if constexpr (!kHasResidual<Op>) {
    return differentiate<Node>(op, keys);
  } else {
    const auto node = node_of<Node>(op);
    auto result = below_autograd(op, keys);
    if (node) {
      set_history(std::get<0>(result), node);
      set_history(Node::last_of(result), node);
    }
    if (has_tangents(op)) {
      const Tensor sum = summed(op);
      set_tangent(std::get<0>(result), tangent_by_aten(op.of(sum)));
      if (has_tangent(sum)) {
        // A result must not share its tangent with an argument.
        set_tangent(Node::last_of(result), tangent_of(sum).clone(at::MemoryFormat::Contiguous));
      }
    }
    if (node) node->save_result(result);  // with its tangent
    return result;
  }
}

template <typename Op>
typename Op::Result gradients_autograd(const Op& op, DispatchKeySet keys) {
  if (!requires_grad(op) && !has_tangents(op)) return below_autograd(op, keys);
  check(op);
  return gradients_by_aten(op);
}

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  RowsOps::for_each([&]<typename Op>() { impl<Op, Autograd<rows_autograd<Op>>>(m); });
  AddRowsOps::for_each([&]<typename Op>() { impl<Op, Autograd<rows_autograd<Op>>>(m); });
  GradientOps::for_each([&]<typename Op>() { impl<Op, Autograd<gradients_autograd<Op>>>(m); });
}

}  // namespace
}  // namespace gpuopt::norm
