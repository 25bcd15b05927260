// Derivatives of attention over a sparse matrix.
//
// A kernel computes what rows know of the gradient. Columns read two numbers of each entry and
// head: its weight and the gradient of its score. Their gradients are sparse products with these as
// values. A gradient that is to be differentiated again is a composition of differentiable
// operators, and so are derivatives in forward mode.
#include "graph_attention/graph_attention_formula.h"

namespace gpuopt::graph_attention {
namespace {

// Edges 0 to 3 are the edges of left, right, value and bias.
struct AttentionNode : GradNode {
  explicit AttentionNode(const GraphAttention& op)
      : GradNode(op.left, op.right, op.value, op.bias),
        matrix_(this, op, check_attention(op)),
        left_(this, op.left),
        right_(this, op.right),
        value_(this, op.value),
        bias_(this, op.bias),
        factor_(op.factor) {}
  std::string name() const override { return "GpuoptGraphAttentionBackward"; }
  void describe_state(NodeState& state) const override {
    matrix_.describe_state(state);
    state(factor_);
  }

  void save_result(const GraphAttention::Result& result) {
    out_.save_result(std::get<0>(result));
    log_sum_.save(std::get<1>(result));
  }

  // Calls with tangents are composed.
  static Tensor tangent(const GraphAttention&, const GraphAttention::Result&) { return {}; }

  variable_list gradients(const Tensor& grad) override {
    variable_list inputs(4);
    const bool for_right = task_should_compute_output(1), for_value = task_should_compute_output(2);
    const Sparse matrix = matrix_.unpack();
    const Sparse transpose =
        for_right || for_value || matrix_.has_transpose() ? matrix_.transpose(matrix) : Sparse();
    const AttentionFormula formula{matrix,          transpose,      left_.unpack(), right_.unpack(),
                                   value_.unpack(), bias_.unpack(), factor_};
    const auto [left_grad, weight, score_grad] =
        at::GradMode::is_enabled() ? formula.of_rows(grad) : of_rows(formula, grad);
    inputs[0] = left_grad;
    if (for_right) inputs[1] = formula.right_grad(score_grad);
    if (for_value) inputs[2] = formula.value_grad(weight, grad);
    if (formula.bias.defined()) inputs[3] = score_grad;
    return inputs;
  }

 private:
  GraphAttentionBackward::Result of_rows(const AttentionFormula& f, const Tensor& grad) {
    const Tensor out = out_.unpack(), log_sum = log_sum_.unpack();
    return call(GraphAttentionBackward{grad, out, log_sum, f.a.ptr, f.a.index,
                                       if_defined(f.a.entry), f.left, f.right, f.value,
                                       if_defined(f.bias), f.factor});
  }

  SavedMatrix matrix_;
  Saved left_, right_, value_, bias_, out_{this}, log_sum_{this};
  double factor_;
};

GraphAttention::Result attention_autograd(const GraphAttention& op, DispatchKeySet keys) {
  const bool is_dual = has_tangents(op);
  if (!is_dual && !requires_grad(op)) return below_autograd(op, keys);
  check_attention(op);
  return is_dual || !is_fused(op) ? composed(op) : differentiate<AttentionNode>(op, keys);
}

TORCH_LIBRARY_IMPL(gpuopt, Autograd, m) { impl<GraphAttention, attention_autograd>(m); }

}  // namespace
}  // namespace gpuopt::graph_attention
