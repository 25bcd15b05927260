// Derivatives of sparse products in reverse and forward mode.
//
// With A for the matrix and its values, the gradients of a sum A B are A^T G for B, and for the
// values the products of the rows of G and B that entries name. A mean divides G by the number of
// entries first. Each result of a maximum is one product of a value and a number of B, so its
// gradient goes to these two. All formulas call differentiable operators, so higher derivatives
// follow.
#include <ATen/ATen.h>

#include <vector>

#include "binding/grad_node.h"
#include "index_add/binding/index_add_ops.h"
#include "index_select/index_select_ops.h"
#include "spmm/binding/spmm_reference.h"
#include "spmm/binding/spmm_saved.h"

namespace gpuopt::spmm {
namespace {

using namespace autograd_names;

// ---------------------------------------------------------------- sums

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
      if_defined(transpose.index), if_defined(transpose.entry), a.longest, transpose.longest});
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

// ---------------------------------------------------------------- maxima

// The column of each position in the values.
Tensor columns_by_position(const Sparse& a, const SymInt& entries) {
  const Tensor columns =
      a.index.defined() ? a.index : at::arange(at::Scalar(entries), a.ptr.options());
  if (!a.entry.defined()) return columns;
  return at::zeros_like(columns).scatter(0, a.entry.to(at::kLong), columns);
}

// The entries that the results of a maximum are from.
class Winners {
 public:
  // `columns` has the column of each position in the values.
  Winners(const Tensor& arg, const Tensor& columns, int64_t row_dim, bool has_heads)
      : has_won_(arg.ge(0)),
        position_(arg.to(at::kLong).clamp_min(0)),
        columns_(columns.to(at::kLong)),
        row_dim_(row_dim),
        has_heads_(has_heads) {}

  // value * table[..., column, ...] for each result, or 0 without an entry. `table` is dense, or
  // has its shape.
  Tensor products(const Tensor& value, const Tensor& table) const {
    if (is_known_zero(columns_.sym_size(0))) return nothing(table);
    Tensor found = rows(table);
    if (value.defined()) {
      found = found * gathered(value.reshape(-1), in_values()).to(compute_type(table));
    }
    return found.to(table.scalar_type());
  }

  // factor * table[..., column, ...], added up at the positions of the entries: (E) or (E, heads).
  Tensor sums(const Tensor& factor, const Tensor& table) const {
    const SymInt entries = columns_.sym_size(0);
    at::SymDimVector sizes{entries};
    if (has_heads_) sizes.push_back(table.sym_size(-2));
    if (is_known_zero(entries)) return table.new_zeros_symint(sizes);
    const Tensor products = (factor.to(compute_type(table)) * rows(table)).reshape(-1);
    const Tensor zeros = products.new_zeros_symint({c10::multiply_integers(sizes)});
    const Tensor sums =
        call(IndexAdd{zeros, 0, in_values().reshape(-1), products, 1, "deterministic"});
    return sums.to(table.scalar_type()).view_symint(sizes);
  }

 private:
  Tensor nothing(const Tensor& table) const {
    return table.new_zeros_symint(position_.sym_sizes());
  }

  static Tensor gathered(const Tensor& table, const Tensor& index) {
    return call(IndexSelect{table, 0, index.reshape(-1)}).view_symint(index.sym_sizes());
  }

  // 0, 1, ... along a dimension, times a stride.
  Tensor along(int64_t dim, const SymInt& size, const SymInt& stride) const {
    std::vector<int64_t> shape(static_cast<size_t>(position_.dim() - dim), 1);
    shape[0] = -1;
    return at::arange(at::Scalar(size), position_.options()).mul(at::Scalar(stride)).view(shape);
  }

  Tensor in_values() const {
    if (!has_heads_) return position_;
    const SymInt heads = position_.sym_size(-2);
    return position_.mul(at::Scalar(heads)) + along(position_.dim() - 2, heads, 1);
  }

  Tensor rows(const Tensor& table) const {
    Tensor index = gathered(columns_, position_);
    SymInt stride = 1;
    Tensor others;
    for (int64_t d = table.dim() - 1; d >= 0; --d) {
      if (d == row_dim_) {
        index = index.mul(at::Scalar(stride));
      } else {
        const Tensor own = along(d, table.sym_size(d), stride);
        others = others.defined() ? others + own : own;
      }
      stride = stride * table.sym_size(d);
    }
    if (others.defined()) index = index + others;
    const Tensor found = gathered(table.reshape(-1), index).to(compute_type(table));
    return at::where(has_won_, found, 0);
  }

  Tensor has_won_, position_, columns_;
  int64_t row_dim_;
  bool has_heads_;
};

Tensor selected_product(const Sparse& a, const Tensor& value, const Tensor& dense,
                        const Tensor& selected) {
  return call(SpmmSelected{a.ptr, if_defined(a.index), if_defined(a.entry), if_defined(value),
                           dense, selected, a.longest});
}

// ---------------------------------------------------------------- nodes

// Edges 0 and 1 are value's and dense's.
class MatrixNode : public torch::autograd::Node {
 public:
  template <typename Op>
  void save(const Op& op, const Shape& shape, bool for_value, bool for_dense) {
    matrix_ = SavedMatrix(op, shape);
    row_dim_ = shape.row_dim;
    has_heads_ = shape.has_heads;
    has_value_ = for_value && is_given(op.value);
    if (has_value_) value_ = {*op.value, /*is_output=*/false};
    if (for_dense) dense_ = {op.dense, /*is_output=*/false};
  }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    matrix_.reset();
    for (SavedVariable* saved : {&value_, &dense_, &arg_}) saved->reset_data();
  }

 protected:
  Tensor value() const { return has_value_ ? value_.unpack() : Tensor(); }

  SavedMatrix matrix_;
  SavedVariable value_, dense_, arg_;
  int64_t row_dim_ = 0;
  bool has_heads_ = false, has_value_ = false;
};

struct SpmmNode : MatrixNode {
  std::string name() const override { return "GpuoptSpmmBackward"; }

  template <typename Op>
  void save(const Op& op, const Shape& shape) {
    MatrixNode::save(op, shape, /*for_value=*/next_edge(1).is_valid(),
                     /*for_dense=*/next_edge(0).is_valid());
    is_mean_ = op.reduce == "mean";
  }
  void save_arg(const Tensor& arg) {
    has_arg_ = true;
    arg_ = {arg, /*is_output=*/false};
  }

  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    variable_list inputs(2);
    if (!grads[0].defined()) return inputs;
    const Sparse a = matrix_.own();
    const bool for_value = task_should_compute_output(0), for_dense = task_should_compute_output(1);
    // The transpose is only needed in the gradient of dense, and in derivatives of the values'.
    const bool needs_transpose = for_dense || (for_value && !has_arg_ && matrix_.has_transpose());
    const Sparse transpose = needs_transpose ? matrix_.transpose(a) : Sparse();
    if (has_arg_) {
      const Tensor arg = arg_.unpack();
      if (for_dense) inputs[1] = selected_product(transpose, value(), grads[0], arg);
      if (for_value) {
        const Tensor dense = dense_.unpack();
        inputs[0] =
            Winners(arg, columns_by_position(a, dense.sym_size(row_dim_)), row_dim_, has_heads_)
                .sums(grads[0], dense);
      }
      return inputs;
    }
    const Tensor grad = is_mean_ ? divided_by_counts(grads[0], a.ptr, row_dim_) : grads[0];
    if (for_dense) inputs[1] = product(transpose, value(), grad, a);
    if (for_value) {
      inputs[0] = value_gradient(a, grad, dense_.unpack(), row_dim_, has_heads_, transpose);
    }
    return inputs;
  }

 private:
  bool is_mean_ = false, has_arg_ = false;
};

struct SelectedNode : MatrixNode {
  std::string name() const override { return "GpuoptSpmmSelectedBackward"; }

  void save(const SpmmSelected& op, const Shape& shape) {
    MatrixNode::save(op, shape, true, /*for_dense=*/next_edge(0).is_valid());
    arg_ = {op.selected, /*is_output=*/false};
    entries_ = shape.entries;
  }

  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    variable_list inputs(2);
    const Tensor& grad = grads[0];
    if (!grad.defined()) return inputs;
    const Sparse own = matrix_.own();
    const Sparse by_row{own.ptr, rows_of(own.ptr, entries_), own.entry};
    const Winners winners(arg_.unpack(), columns_by_position(by_row, entries_), row_dim_,
                          has_heads_);
    if (task_should_compute_output(0)) inputs[0] = winners.sums(dense_.unpack(), grad);
    if (task_should_compute_output(1)) inputs[1] = winners.products(value(), grad);
    return inputs;
  }

 private:
  SymInt entries_ = 0;
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

template <typename Node, typename Op, typename First, typename Second>
NodePtr<Node> node_of(const Op& op, const Shape& shape, const First& first, const Second& second) {
  if (!requires_grad(op)) return {};
  auto node = make_node<Node>();
  node->set_next_edges(collect_next_edges(first, second));
  node->save(op, shape);
  return node;
}

// ---------------------------------------------------------------- Autograd kernels

Tensor primal_or_undefined(const TensorOption& tensor) {
  return is_given(tensor) ? primal_of(*tensor) : Tensor();
}

// The tangent of an operator that is linear in value and in dense: the sum of its results for each
// tangent. f is a function of the two.
template <typename F>
Tensor tangent_of_product(const TensorOption& value, const Tensor& dense, F f) {
  Tensor sum;
  if (has_tangent(dense)) sum = f(primal_or_undefined(value), tangent_of(dense));
  if (is_given(value) && has_tangent(*value)) {
    const Tensor other = f(tangent_of(*value), primal_of(dense));
    sum = sum.defined() ? sum + other : other;
  }
  return sum;
}

// Spmm of a maximum, or SpmmArg.
template <typename Op>
SpmmArg::Result extremum_autograd(const Op& op, DispatchKeySet keys) {
  const Shape shape = check(op);
  const auto node = node_of<SpmmNode>(op, shape, op.value, op.dense);
  auto [result, arg] = below_autograd(
      SpmmArg{op.ptr, op.index, op.entry, op.value, op.dense, op.reduce, op.longest}, keys);
  if (node) {
    node->save_arg(arg);
    set_history(result, node);
  }
  if (has_tangents(op)) {
    const Winners winners(arg, columns_by_position(matrix_of(op), shape.columns), shape.row_dim,
                          shape.has_heads);
    set_tangent(result, tangent_of_product(op.value, op.dense,
                                           [&](const Tensor& value, const Tensor& dense) {
                                             return winners.products(value, dense);
                                           }));
  }
  return {result, arg};
}

Tensor spmm_autograd(const Spmm& op, DispatchKeySet keys) {
  const bool has_any_tangent = has_tangents(op);
  if (!has_any_tangent && !requires_grad(op)) return below_autograd(op, keys);
  if (is_extremum(op.reduce)) return std::get<0>(extremum_autograd(op, keys));
  const auto node = node_of<SpmmNode>(op, check(op), op.value, op.dense);
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

Tensor selected_autograd(const SpmmSelected& op, DispatchKeySet keys) {
  const auto node = node_of<SelectedNode>(op, check(op), op.value, op.dense);
  Tensor result = below_autograd(op, keys);
  if (node) set_history(result, node);
  if (has_tangents(op)) {
    set_tangent(result, tangent_of_product(
                            op.value, op.dense, [&](const Tensor& value, const Tensor& dense) {
                              return selected_product(matrix_of(op), value, dense, op.selected);
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
                                    op.t_index, op.t_entry, op.longest, op.t_longest});
                }));
  }
  return result;
}

TORCH_LIBRARY_IMPL(gpuopt, Autograd, m) {
  impl<Spmm, spmm_autograd>(m);
  impl<SpmmArg, extremum_autograd<SpmmArg>>(m);
  impl<SpmmSelected, selected_autograd>(m);
  impl<Sddmm, sddmm_autograd>(m);
}

}  // namespace
}  // namespace gpuopt::spmm
