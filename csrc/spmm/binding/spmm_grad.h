// Matrices in formulas of derivatives, and in the nodes that compute them.
#pragma once

#include <ATen/ATen.h>

#include "binding/grad_node.h"
#include "spmm/binding/spmm_reference.h"

namespace gpuopt::spmm {

using namespace autograd_names;

// A matrix, or what is undefined if it is not given.
struct Sparse {
  Tensor ptr, index, entry;

  // The transpose, made here.
  Sparse transposed(const SymInt& columns) const {
    Tensor columns_of_entries = index;
    if (!columns_of_entries.defined())
      columns_of_entries = at::arange(at::Scalar(columns), ptr.options());
    auto [t_ptr, t_index, t_entry] = call(Transpose{ptr, columns_of_entries, columns});
    if (entry.defined()) t_entry = entry.index_select(0, t_entry);
    return {t_ptr, t_index, t_entry};
  }
};

// A matrix and its transpose in a node.
class SavedMatrix {
 public:
  template <typename Op>
  SavedMatrix(GradNode* node, const Op& op, const Shape& shape)
      : ptr_(node),
        index_(node, op.index),
        entry_(node, op.entry),
        t_ptr_(node),
        t_index_(node),
        t_entry_(node),
        columns_(shape.columns) {
    if constexpr (requires { op.t_ptr; }) {
      has_transpose_ = is_given(op.t_ptr);
      t_ptr_.save(op.t_ptr);
      t_index_.save(op.t_index);
      t_entry_.save(op.t_entry);
    }
    // The gradient of a maximum reads ptr only to make what is not given.
    if constexpr (requires { op.reduce; }) {
      if (is_extremum(op.reduce) && is_given(op.index) && has_transpose_) return;
    }
    ptr_.save(op.ptr);
  }

  Sparse unpack() const { return {ptr_.unpack(), index_.unpack(), entry_.unpack()}; }
  Sparse transpose(const Sparse& matrix) const {
    if (!has_transpose_) return matrix.transposed(columns_);
    return {t_ptr_.unpack(), t_index_.unpack(), t_entry_.unpack()};
  }
  bool has_transpose() const { return has_transpose_; }
  void describe_state(NodeState& state) const { state(has_transpose_, columns_); }

 private:
  GradNode::Saved ptr_, index_, entry_, t_ptr_, t_index_, t_entry_;
  bool has_transpose_ = false;
  SymInt columns_;
};

template <typename Op>
Sparse matrix_of(const Op& op) {
  return {op.ptr, value_or_undefined(op.index), value_or_undefined(op.entry)};
}
template <typename Op>
Sparse transpose_of(const Op& op) {
  return {value_or_undefined(op.t_ptr), value_or_undefined(op.t_index),
          value_or_undefined(op.t_entry)};
}

// A product with dense rows.
inline Tensor product(const Sparse& a, const Tensor& value, const Tensor& dense,
                      const Sparse& transpose, std::string_view reduce = "sum") {
  return call(Spmm{a.ptr, if_defined(a.index), if_defined(a.entry), if_defined(value), dense,
                   reduce, if_defined(transpose.ptr), if_defined(transpose.index),
                   if_defined(transpose.entry)});
}

// The node of a product with dense rows. Edges 0 and 1 are value's and dense's.
struct MatrixNode : GradNode {
  template <typename Op>
  MatrixNode(const Op& op, const Shape& shape)
      : GradNode(op.value, op.dense),
        matrix_(this, op, shape),
        row_dim_(shape.row_dim),
        has_heads_(shape.has_heads) {
    if (next_edge(1).is_valid()) value_.save(op.value);
    if (next_edge(0).is_valid()) dense_.save(op.dense);
  }

  void describe_state(NodeState& state) const override {
    matrix_.describe_state(state);
    state(row_dim_, has_heads_);
  }

 protected:
  SavedMatrix matrix_;
  Saved value_{this}, dense_{this}, arg_{this};
  int64_t row_dim_;
  bool has_heads_;
};

// A maximum or minimum.
Tensor extremum_autograd(const Spmm& op, DispatchKeySet keys);

}  // namespace gpuopt::spmm
