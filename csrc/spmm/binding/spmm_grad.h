// What derivatives of sparse products share: matrices in nodes, and tangents.
#pragma once

#include <ATen/ATen.h>

#include <array>

#include "binding/grad_node.h"
#include "spmm/binding/spmm_reference.h"

namespace gpuopt::spmm {

using namespace autograd_names;

// A matrix, or what is undefined if it is not given.
struct Sparse {
  Tensor ptr, index, entry;
  SymInt longest = -1;

  // The transpose, made here.
  Sparse transposed(const SymInt& columns) const {
    Tensor own = index;
    if (!own.defined()) own = at::arange(at::Scalar(columns), ptr.options());
    auto [t_ptr, t_index, t_entry] = call(Transpose{ptr, own, columns});
    if (entry.defined()) t_entry = entry.index_select(0, t_entry);
    return {t_ptr, t_index, t_entry};
  }
};

// A matrix and its transpose in a node.
class SavedMatrix {
 public:
  SavedMatrix() = default;

  template <typename Op>
  SavedMatrix(const Op& op, const Shape& shape) : columns_(shape.columns), longest_(op.longest) {
    save(1, value_or_undefined(op.index));
    save(2, value_or_undefined(op.entry));
    if constexpr (requires { op.t_ptr; }) {
      save(3, value_or_undefined(op.t_ptr));
      save(4, value_or_undefined(op.t_index));
      save(5, value_or_undefined(op.t_entry));
      t_longest_ = op.t_longest;
    }
    // The gradient of a maximum reads ptr only to make what is not given.
    if constexpr (requires { op.reduce; }) {
      if (is_extremum(op.reduce) && given_[1] && given_[3]) return;
    }
    save(0, op.ptr);
  }

  Sparse own() const { return {unpacked(0), unpacked(1), unpacked(2), longest_}; }
  Sparse transpose(const Sparse& own) const {
    if (!given_[3]) return own.transposed(columns_);
    return {unpacked(3), unpacked(4), unpacked(5), t_longest_};
  }
  bool has_transpose() const { return given_[3]; }
  void reset() {
    for (SavedVariable& tensor : saved_) tensor.reset_data();
  }

 private:
  void save(size_t i, const Tensor& tensor) {
    given_[i] = tensor.defined();
    if (given_[i]) saved_[i] = {tensor, /*is_output=*/false};
  }
  Tensor unpacked(size_t i) const { return given_[i] ? saved_[i].unpack() : Tensor(); }

  std::array<SavedVariable, 6> saved_;
  std::array<bool, 6> given_{};
  SymInt columns_ = 0, longest_ = -1, t_longest_ = -1;
};

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

template <typename Node, typename Op, typename First, typename Second>
NodePtr<Node> node_of(const Op& op, const Shape& shape, const First& first, const Second& second) {
  if (!requires_grad(op)) return {};
  auto node = make_node<Node>();
  node->set_next_edges(collect_next_edges(first, second));
  node->save(op, shape);
  return node;
}

// ---------------------------------------------------------------- tangents

inline Tensor primal_or_undefined(const TensorOption& tensor) {
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

template <typename Op>
Sparse matrix_of(const Op& op) {
  return {op.ptr, value_or_undefined(op.index), value_or_undefined(op.entry), op.longest};
}

// A maximum or minimum.
Tensor extremum_autograd(const Spmm& op, DispatchKeySet keys);

}  // namespace gpuopt::spmm
