// Derivatives of sums, means and sddmm in reverse and forward mode.
//
// With A for the matrix and its values, the gradients of a sum A B are A^T G for B, and for the
// values the products of the rows of G and B that entries name. A mean divides G by the number of
// entries first. All formulas call differentiable operators, so higher derivatives follow.
#include "spmm/binding/spmm_grad.h"

#include <ATen/ATen.h>

#include <vector>

namespace gpuopt::spmm {
namespace {

using namespace autograd_names;

// Rows of any number of batches as (rows, heads, features), or (rows, features) without heads.
Tensor without_batches(const Tensor& dense, int64_t row_dim, bool has_heads) {
  Tensor front = dense.movedim(row_dim, 0);
  if (has_heads) front = front.movedim(-2, 1);
  if (front.dim() == 1) return front.unsqueeze(1);
  // torch.vmap has no rule for flatten.
  const auto sizes = front.sym_sizes();
  at::SymDimVector merged(sizes.slice(0, has_heads ? 2 : 1));
  merged.push_back(c10::multiply_integers(sizes.slice(has_heads ? 2 : 1)));
  return front.reshape_symint(merged);
}

// The gradient of the values of a sum.
Tensor value_gradient(const Sparse& a, const Tensor& grad, const Tensor& dense, int64_t row_dim,
                      bool has_heads, const Sparse& transpose) {
  return call(Sddmm{
      a.ptr, if_defined(a.index), if_defined(a.entry), without_batches(grad, row_dim, has_heads),
      without_batches(dense, row_dim, has_heads), has_heads, if_defined(transpose.ptr),
      if_defined(transpose.index), if_defined(transpose.entry)});
}

// ---------------------------------------------------------------- nodes

struct SumNode : MatrixNode {
  explicit SumNode(const Spmm& op) : MatrixNode(op, check(op)), is_mean_(op.reduce == "mean") {}
  std::string name() const override { return "GpuoptSpmmBackward"; }
  void describe_state(NodeState& state) const override {
    MatrixNode::describe_state(state);
    state(is_mean_);
  }

  variable_list gradients(const Tensor& of_result) override {
    variable_list inputs(2);
    const Sparse a = matrix_.unpack();
    const bool for_value = task_should_compute_output(0), for_dense = task_should_compute_output(1);
    // The gradient of the values needs the transpose for second derivatives only.
    const Sparse transpose = for_dense || matrix_.has_transpose() ? matrix_.transpose(a) : Sparse();
    const Tensor grad = is_mean_ ? divided_by_counts(of_result, a.ptr, row_dim_) : of_result;
    if (for_dense) inputs[1] = product(transpose, value_.unpack(), grad, a);
    if (for_value) {
      inputs[0] = value_gradient(a, grad, dense_.unpack(), row_dim_, has_heads_, transpose);
    }
    return inputs;
  }

  static Tensor tangent(const Spmm& op, const Tensor&) {
    return tangent_of_product(op.value, op.dense, [&](const Tensor& value, const Tensor& dense) {
      return product(matrix_of(op), value, dense, transpose_of(op), op.reduce);
    });
  }

 private:
  bool is_mean_;
};

struct SddmmNode : ProductNode {
  explicit SddmmNode(const Sddmm& op) : ProductNode(op.a, op.b), matrix_(this, op, check(op)) {
    save_factors(op.a, op.b);
  }
  std::string name() const override { return "GpuoptSddmmBackward"; }
  void describe_state(NodeState& state) const override { matrix_.describe_state(state); }

  variable_list gradients(const Tensor& grad) override {
    variable_list inputs(2);
    const Sparse matrix = matrix_.unpack();
    const bool for_a = task_should_compute_output(0), for_b = task_should_compute_output(1);
    const Sparse transpose =
        for_b || matrix_.has_transpose() ? matrix_.transpose(matrix) : Sparse();
    if (for_a) inputs[0] = product(matrix, grad, second_.unpack(), transpose);
    if (for_b) inputs[1] = product(transpose, grad, first_.unpack(), matrix);
    return inputs;
  }

  static Tensor tangent(const Sddmm& op, const Tensor&) {
    return tangent_of_product(op.a, op.b, [&](const Tensor& a, const Tensor& b) {
      return call(
          Sddmm{op.ptr, op.index, op.entry, a, b, op.heads, op.t_ptr, op.t_index, op.t_entry});
    });
  }

 private:
  SavedMatrix matrix_;
};

// ---------------------------------------------------------------- Autograd kernels

Tensor spmm_autograd(const Spmm& op, DispatchKeySet keys) {
  if (!has_tangents(op) && !requires_grad(op)) return below_autograd(op, keys);
  if (is_extremum(op.reduce)) return extremum_autograd(op, keys);
  return differentiate<SumNode>(op, keys);
}

TORCH_LIBRARY_IMPL(gpuopt, Autograd, m) {
  impl<Spmm, spmm_autograd>(m);
  impl<Sddmm, Grad<SddmmNode>>(m);
}

}  // namespace
}  // namespace gpuopt::spmm
