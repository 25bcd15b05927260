// Derivatives of maxima and minima in reverse and forward mode.
//
// Each result is one product of a value and a number of dense, so its gradient goes to these two.
// The gradient of dense is a sum of selected entries, over the transpose.
#include <vector>

#include "index_add/binding/index_add_ops.h"
#include "index_select/index_select_ops.h"
#include "spmm/binding/spmm_grad.h"

namespace gpuopt::spmm {
namespace {

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
        const Tensor offsets = along(d, table.sym_size(d), stride);
        others = others.defined() ? others + offsets : offsets;
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
                           dense, selected});
}

// ---------------------------------------------------------------- nodes

struct ExtremumNode : MatrixNode {
  template <typename Op>
  explicit ExtremumNode(const Op& op) : MatrixNode(op, check(op)) {}
  std::string name() const override { return "GpuoptSpmmExtremumBackward"; }
  void save_arg(const Tensor& arg) { arg_.save(arg); }

  variable_list gradients(const Tensor& grad) override {
    variable_list inputs(2);
    const Sparse a = matrix_.unpack();
    const Tensor arg = arg_.unpack();
    if (task_should_compute_output(1)) {
      inputs[1] = selected_product(matrix_.transpose(a), value_.unpack(), grad, arg);
    }
    if (task_should_compute_output(0)) {
      const Tensor dense = dense_.unpack();
      const Tensor columns = columns_by_position(a, dense.sym_size(row_dim_));
      inputs[0] = Winners(arg, columns, row_dim_, has_heads_).sums(grad, dense);
    }
    return inputs;
  }
};

struct SelectedNode : MatrixNode {
  explicit SelectedNode(const SpmmSelected& op) : SelectedNode(op, check(op)) {}
  SelectedNode(const SpmmSelected& op, const Shape& shape)
      : MatrixNode(op, shape), entries_(shape.entries) {
    arg_.save(op.selected);
  }
  std::string name() const override { return "GpuoptSpmmSelectedBackward"; }
  void describe_state(NodeState& state) const override {
    MatrixNode::describe_state(state);
    state(entries_);
  }

  variable_list gradients(const Tensor& grad) override {
    variable_list inputs(2);
    const Sparse matrix = matrix_.unpack();
    const Sparse by_row{matrix.ptr, rows_of(matrix.ptr, entries_), matrix.entry};
    const Winners winners(arg_.unpack(), columns_by_position(by_row, entries_), row_dim_,
                          has_heads_);
    if (task_should_compute_output(0)) inputs[0] = winners.sums(dense_.unpack(), grad);
    if (task_should_compute_output(1)) inputs[1] = winners.products(value_.unpack(), grad);
    return inputs;
  }

  static Tensor tangent(const SpmmSelected& op, const Tensor&) {
    return tangent_of_product(op.value, op.dense, [&](const Tensor& value, const Tensor& dense) {
      return selected_product(matrix_of(op), value, dense, op.selected);
    });
  }

 private:
  SymInt entries_;
};

// ---------------------------------------------------------------- Autograd kernels

// Spmm of a maximum, or SpmmArg.
template <typename Op>
SpmmArg::Result arg_autograd(const Op& op, DispatchKeySet keys) {
  const auto node = node_of<ExtremumNode>(op);
  auto [result, arg] =
      below_autograd(SpmmArg{op.ptr, op.index, op.entry, op.value, op.dense, op.reduce}, keys);
  if (node) {
    node->save_arg(arg);
    set_history(result, node);
  }
  if (has_tangents(op)) {
    const Shape shape = check(op);
    const Winners winners(arg, columns_by_position(matrix_of(op), shape.columns), shape.row_dim,
                          shape.has_heads);
    set_tangent(result, tangent_of_product(op.value, op.dense,
                                           [&](const Tensor& value, const Tensor& dense) {
                                             return winners.products(value, dense);
                                           }));
  }
  return {result, arg};
}

TORCH_LIBRARY_IMPL(gpuopt, Autograd, m) {
  impl<SpmmArg, arg_autograd<SpmmArg>>(m);
  impl<SpmmSelected, Grad<SelectedNode>>(m);
}

}  // namespace

Tensor extremum_autograd(const Spmm& op, DispatchKeySet keys) {
  return std::get<0>(arg_autograd(op, keys));
}

}  // namespace gpuopt::spmm
