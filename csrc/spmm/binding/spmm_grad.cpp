// Derivatives of sums, means and sddmm in reverse and forward mode.
//
// With A for the matrix and its values, the gradients of a sum A B are A^T G for B, and for the
// values the products of the rows of G and B that entries name. A mean divides G by the number of
// entries first. All formulas call differentiable operators, so higher derivatives follow.
#include "spmm/binding/spmm_grad.h"

#include <vector>

namespace gpuopt::spmm {
namespace {

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

// Rows divided by the number of their entries, which is counted in integers.
Tensor divided_by_counts(const Tensor& rows, const Tensor& ptr, int64_t row_dim) {
  const auto dtype = compute_type(rows);
  std::vector<int64_t> shape(static_cast<size_t>(rows.dim() - row_dim), 1);
  shape[0] = -1;
  const Tensor counts = ptr.slice(0, 1) - ptr.slice(0, 0, -1);
  const Tensor divisors = counts.clamp_min(1).to(dtype).view(shape);
  return rows.to(dtype).div(divisors).to(rows.scalar_type());
}

// ---------------------------------------------------------------- nodes

struct SumNode : MatrixNode {
  std::string name() const override { return "GpuoptSpmmBackward"; }

  void save(const Spmm& op, const Shape& shape) {
    MatrixNode::save(op, shape, /*for_value=*/next_edge(1).is_valid(),
                     /*for_dense=*/next_edge(0).is_valid());
    is_mean_ = op.reduce == "mean";
  }

  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    variable_list inputs(2);
    if (!grads[0].defined()) return inputs;
    const Sparse a = matrix_.own();
    const bool for_value = task_should_compute_output(0), for_dense = task_should_compute_output(1);
    // The gradient of the values needs the transpose in its own derivatives only.
    const Sparse transpose = for_dense || matrix_.has_transpose() ? matrix_.transpose(a) : Sparse();
    const Tensor grad = is_mean_ ? divided_by_counts(grads[0], a.ptr, row_dim_) : grads[0];
    if (for_dense) inputs[1] = product(transpose, value(), grad, a);
    if (for_value) {
      inputs[0] = value_gradient(a, grad, dense_.unpack(), row_dim_, has_heads_, transpose);
    }
    return inputs;
  }

 private:
  bool is_mean_ = false;
};

struct SddmmNode : torch::autograd::Node {
  std::string name() const override { return "GpuoptSddmmBackward"; }

  void save(const Sddmm& op, const Shape& shape) {
    matrix_ = SavedMatrix(op, shape);
    if (next_edge(1).is_valid()) a_ = {op.a, /*is_output=*/false};
    if (next_edge(0).is_valid()) b_ = {op.b, /*is_output=*/false};
  }

  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    variable_list inputs(2);
    const Tensor& grad = grads[0];
    if (!grad.defined()) return inputs;
    const Sparse own = matrix_.own();
    const bool for_a = task_should_compute_output(0), for_b = task_should_compute_output(1);
    const Sparse transpose = for_b || matrix_.has_transpose() ? matrix_.transpose(own) : Sparse();
    if (for_a) inputs[0] = product(own, grad, b_.unpack(), transpose);
    if (for_b) inputs[1] = product(transpose, grad, a_.unpack(), own);
    return inputs;
  }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    matrix_.reset();
    a_.reset_data();
    b_.reset_data();
  }

 private:
  SavedMatrix matrix_;
  SavedVariable a_, b_;
};

// ---------------------------------------------------------------- Autograd kernels

Tensor spmm_autograd(const Spmm& op, DispatchKeySet keys) {
  const bool has_any_tangent = has_tangents(op);
  if (!has_any_tangent && !requires_grad(op)) return below_autograd(op, keys);
  if (is_extremum(op.reduce)) return extremum_autograd(op, keys);
  const auto node = node_of<SumNode>(op, check(op), op.value, op.dense);
  Tensor result = below_autograd(op, keys);
  if (node) set_history(result, node);
  if (has_any_tangent) {
    set_tangent(
        result,
        tangent_of_product(op.value, op.dense, [&](const Tensor& value, const Tensor& dense) {
          return product(matrix_of(op), value, dense, transpose_of(op), op.reduce);
        }));
  }
  return result;
}

Tensor sddmm_autograd(const Sddmm& op, DispatchKeySet keys) {
  const auto node = node_of<SddmmNode>(op, check(op), op.a, op.b);
  Tensor result = below_autograd(op, keys);
  if (node) set_history(result, node);
  if (has_tangents(op)) {
    set_tangent(result, tangent_of_product(op.a, op.b, [&](const Tensor& a, const Tensor& b) {
                  return call(Sddmm{op.ptr, op.index, op.entry, a, b, op.heads, op.t_ptr,
                                    op.t_index, op.t_entry});
                }));
  }
  return result;
}

TORCH_LIBRARY_IMPL(gpuopt, Autograd, m) {
  impl<Spmm, spmm_autograd>(m);
  impl<Sddmm, sddmm_autograd>(m);
}

}  // namespace
}  // namespace gpuopt::spmm
