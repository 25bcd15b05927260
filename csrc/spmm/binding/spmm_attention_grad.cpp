// Derivatives of attention over a sparse matrix.
//
// A kernel computes what rows know of the gradient. Columns read two numbers of each entry and
// head: its weight and the gradient of its score. Their gradients are sparse products with these as
// values. A gradient that is to be differentiated again is a composition of differentiable
// operators, and so are derivatives in forward mode.
#include <ATen/ATen.h>

#include "spmm/binding/spmm_attention.h"

namespace gpuopt::spmm {
namespace {

using namespace autograd_names;

// Edges 0 to 3 are the edges of left, right, value and bias.
struct AttentionNode : torch::autograd::Node {
  std::string name() const override { return "GpuoptGraphAttentionBackward"; }

  AttentionNode(const GraphAttention& op, const Shape& shape)
      : matrix_(op, shape),
        left_(op.left, /*is_output=*/false),
        right_(op.right, /*is_output=*/false),
        value_(op.value, /*is_output=*/false),
        has_bias_(is_given(op.bias)),
        factor_(op.factor) {
    if (has_bias_) bias_ = {*op.bias, /*is_output=*/false};
  }

  void save_results(const Tensor& out, const Tensor& log_sum) {
    out_ = {out, /*is_output=*/true};
    log_sum_ = {log_sum, /*is_output=*/false};
  }

  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    variable_list inputs(4);
    const Tensor& grad = grads[0];
    if (!grad.defined()) return inputs;
    const bool for_right = task_should_compute_output(1), for_value = task_should_compute_output(2);
    const Sparse own = matrix_.own();
    const Sparse transpose =
        for_right || for_value || matrix_.has_transpose() ? matrix_.transpose(own) : Sparse();
    const AttentionFormula formula(own, transpose, left_.unpack(), right_.unpack(), value_.unpack(),
                                   has_bias_ ? bias_.unpack() : Tensor(), factor_);
    const auto [left_grad, weight, score_grad] =
        at::GradMode::is_enabled() ? formula.of_rows(grad) : of_rows(formula, grad);
    inputs[0] = left_grad;
    if (for_right) inputs[1] = formula.right_grad(score_grad);
    if (for_value) inputs[2] = formula.value_grad(weight, grad);
    if (has_bias_) inputs[3] = score_grad;
    return inputs;
  }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    matrix_.reset();
    for (SavedVariable* saved : {&left_, &right_, &value_, &bias_, &out_, &log_sum_}) {
      saved->reset_data();
    }
  }

 private:
  GraphAttentionBackward::Result of_rows(const AttentionFormula& f, const Tensor& grad) {
    const Tensor out = out_.unpack(pointer_to(this)), log_sum = log_sum_.unpack();
    return call(GraphAttentionBackward{grad, out, log_sum, f.a.ptr, f.a.index,
                                       if_defined(f.a.entry), f.left, f.right, f.value,
                                       if_defined(f.bias), f.factor});
  }

  SavedMatrix matrix_;
  SavedVariable left_, right_, value_, bias_, out_, log_sum_;
  bool has_bias_ = false;
  double factor_ = 1;
};

GraphAttention::Result attention_autograd(const GraphAttention& op, DispatchKeySet keys) {
  const bool needs_grad = requires_grad(op);
  if (!needs_grad && !has_tangents(op)) return below_autograd(op, keys);
  const Shape shape = check_attention(op);
  if (has_tangents(op) || !is_fused(op)) return composed(op);
  const auto node = make_node<AttentionNode>(op, shape);
  node->set_next_edges(collect_next_edges(op.left, op.right, op.value, op.bias));
  const auto [out, log_sum] = below_autograd(op, keys);
  torch::autograd::set_history(out, node);
  node->save_results(out, log_sum);
  return {out, log_sum};
}

TORCH_LIBRARY_IMPL(gpuopt, Autograd, m) { impl<GraphAttention, attention_autograd>(m); }

}  // namespace
}  // namespace gpuopt::spmm
