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

struct LayerNormNode : GradNode {
  explicit LayerNormNode(const LayerNormRows& op)
      : GradNode(op.input, op.weight, op.bias),
        dims_(op.dims),
        eps_(op.eps),
        bias_type_(is_given(op.bias) ? op.bias->scalar_type() : at::kFloat),
        input_(this, op.input) {
    if (next_edge(0).is_valid() || has_other_type(op)) weight_.save(op.weight);
  }
  std::string name() const override { return "GpuoptLayerNormBackward"; }
  void describe_state(NodeState& state) const override { state(dims_, eps_, bias_type_); }
  void save_result(const LayerNormRows::Result& result) {
    mean_.save(std::get<1>(result));
    rstd_.save(std::get<2>(result));
  }

  variable_list gradients(const Tensor& grad) override {
    const std::array<bool, 3> mask{task_should_compute_output(0), task_should_compute_output(1),
                                   task_should_compute_output(2)};
    const auto [input, weight, bias] =
        call(LayerNormGradients{grad, input_.unpack(), mean_.unpack(), rstd_.unpack(),
                                if_defined(weight_.unpack()), dims_, eps_, mask});
    return {input, weight, mask[2] ? bias.to(bias_type_) : Tensor()};
  }
  static Tensor tangent(const LayerNormRows& op, const LayerNormRows::Result&) {
    return tangent_by_aten(op);
  }

 private:
  int64_t dims_;
  double eps_;
  at::ScalarType bias_type_;
  Saved input_, weight_{this}, mean_{this}, rstd_{this};
};

struct RmsNormNode : GradNode {
  explicit RmsNormNode(const RmsNormRows& op)
      : GradNode(op.input, op.weight), dims_(op.dims), eps_(op.eps), input_(this, op.input) {
    if (next_edge(0).is_valid() || has_other_type(op)) weight_.save(op.weight);
  }
  std::string name() const override { return "GpuoptRmsNormBackward"; }
  void describe_state(NodeState& state) const override { state(dims_, eps_); }
  void save_result(const RmsNormRows::Result& result) { rstd_.save(std::get<1>(result)); }

  variable_list gradients(const Tensor& grad) override {
    const std::array<bool, 2> mask{task_should_compute_output(0), task_should_compute_output(1)};
    const auto [input, weight] = call(RmsNormGradients{
        grad, input_.unpack(), rstd_.unpack(), if_defined(weight_.unpack()), dims_, eps_, mask});
    return {input, weight};
  }
  static Tensor tangent(const RmsNormRows& op, const RmsNormRows::Result&) {
    return tangent_by_aten(op);
  }

 private:
  int64_t dims_;
  double eps_;
  Saved input_, weight_{this}, rstd_{this};
};

// The statistics are not differentiable.
template <typename Node, typename Op>
typename Op::Result rows_autograd(const Op& op, DispatchKeySet keys) {
  if (requires_grad(op) || has_tangents(op)) check(op);
  return differentiate<Node>(op, keys);
}

template <typename Op>
typename Op::Result gradients_autograd(const Op& op, DispatchKeySet keys) {
  if (!requires_grad(op) && !has_tangents(op)) return below_autograd(op, keys);
  check(op);
  return gradients_by_aten(op);
}

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  impl<LayerNormRows, Autograd<rows_autograd<LayerNormNode, LayerNormRows>>>(m);
  impl<RmsNormRows, Autograd<rows_autograd<RmsNormNode, RmsNormRows>>>(m);
  impl<LayerNormGradients, Autograd<gradients_autograd<LayerNormGradients>>>(m);
  impl<RmsNormGradients, Autograd<gradients_autograd<RmsNormGradients>>>(m);
}

}  // namespace
}  // namespace gpuopt::norm
