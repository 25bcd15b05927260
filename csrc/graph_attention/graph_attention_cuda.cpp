// The CUDA kernels of attention over a sparse matrix: describe tensors as problems, and launch
// their plans.
#include <ATen/ATen.h>

#include <cmath>
#include <tuple>

#include "binding/unfilled.h"
#include "graph_attention/graph_attention_formula.h"
#include "spmm/binding/spmm_launch.h"

namespace gpuopt::graph_attention {
namespace {

// Rows (rows, heads, features) that are aligned to vectors, or a copy of them.
RowsOperand vector_rows(const Tensor& tensor) {
  RowsOperand rows(tensor, 0);
  const DType dtype = to_dtype("", tensor.scalar_type());
  if (is_aligned({rows.rows}, rows.tensor.size(2), dtype)) return rows;
  return RowsOperand(tensor.clone(at::MemoryFormat::Contiguous), 0);
}

// A call that the kernels compute: the problem and the tensors that it points to.
template <typename Op>
struct AttentionCall {
  AttentionCall(const Op& op, const Shape& shape)
      : a(op, shape), value(vector_rows(op.value)), bias(contiguous(op.bias)) {
    const char* name = name_of<Op>();
    check_memory(name, {{"left", op.left}, {"right", op.right}, {"value", op.value}});
    check_memory(name, {{"bias", bias}});
    const bool is_product = is_product_form(op.left);
    left = is_product ? vector_rows(op.left) : RowsOperand(op.left, 0);
    right = is_product ? vector_rows(op.right) : RowsOperand(op.right, 0);
    problem.matrix = a.matrix;
    problem.dtype = to_dtype(name, op.value.scalar_type());
    problem.heads = op.value.size(1);
    problem.features = value.tensor.size(2);
    problem.key_features = is_product ? left.tensor.size(2) : 0;
    problem.factor = op.factor;
    problem.left = left.rows;
    problem.right = right.rows;
    problem.value = value.rows;
    problem.bias = data_of(bias);
  }

  bool is_empty() const {
    return problem.matrix.rows == 0 || problem.matrix.entries == 0 || problem.heads == 0;
  }

  template <typename Plan>
  void launch_plan(Plan plan_of) const {
    const char* name = name_of<Op>();
    check_limits(name, problem.matrix, std::max(problem.features, problem.key_features));
    TensorWorkspace workspace;
    check_launch(name, launch(plan_of(problem), workspace, c10::cuda::getCurrentCUDAStream()));
  }

  MatrixOperand a;
  RowsOperand left, right, value;
  Tensor bias;
  AttentionProblem problem;
};

GraphAttention::Result attention_cuda(const GraphAttention& op) {
  const Shape shape = check_attention(op);
  const c10::cuda::CUDAGuard guard(op.value.device());
  if (!is_fused(op)) return composed(op);
  AttentionCall<GraphAttention> call(op, shape);
  AttentionProblem& problem = call.problem;
  const int64_t rows = problem.matrix.rows, heads = problem.heads;
  const auto options = op.value.options();
  const Tensor out = unfilled({rows, heads, op.value.size(2)}, options);
  const Tensor log_sum = unfilled({rows, heads}, options.dtype(compute_type(op.value)));
  if (call.is_empty()) return {out.zero_(), log_sum.fill_(-INFINITY)};
  problem.out = written(out, rows, problem.features);
  problem.log_sum = log_sum.mutable_data_ptr();
  call.launch_plan([](const AttentionProblem& problem) { return plan(problem); });
  return {out, log_sum};
}

GraphAttentionBackward::Result backward_cuda(const GraphAttentionBackward& op) {
  const Shape shape = check_attention(op);
  const c10::cuda::CUDAGuard guard(op.value.device());
  if (!is_fused(op)) return composed_backward(op);
  AttentionCall<GraphAttentionBackward> call(op, shape);
  AttentionProblem& problem = call.problem;
  const auto options = op.value.options();
  const Tensor left_grad = unfilled(op.left.sizes(), options);
  const Tensor weight = unfilled({problem.matrix.entries, problem.heads}, options);
  const Tensor score_grad = unfilled({problem.matrix.entries, problem.heads}, options);
  if (call.is_empty()) return {left_grad.zero_(), weight.zero_(), score_grad.zero_()};
  check_memory(name_of<GraphAttentionBackward>(),
               {{"grad", op.grad}, {"out", op.out}, {"log_sum", op.log_sum}});
  const RowsOperand grad = vector_rows(op.grad), out = vector_rows(op.out);
  const Tensor log_sum = op.log_sum.contiguous();
  problem.grad = grad.rows;
  problem.out = out.rows;
  problem.log_sum = const_cast<void*>(log_sum.const_data_ptr());  // is only read
  const int64_t width = problem.is_product() ? problem.key_features : problem.heads;
  problem.left_grad = written(left_grad, problem.matrix.rows, width);
  problem.weight = weight.mutable_data_ptr();
  problem.score_grad = score_grad.mutable_data_ptr();
  call.launch_plan([](const AttentionProblem& problem) { return plan_gradient(problem); });
  return {left_grad, weight, score_grad};
}

TORCH_LIBRARY_IMPL(gpuopt, CUDA, m) {
  impl<GraphAttention, attention_cuda>(m);
  impl<GraphAttentionBackward, backward_cuda>(m);
}

}  // namespace
}  // namespace gpuopt::graph_attention
