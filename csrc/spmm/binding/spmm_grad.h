// What derivatives of sparse products share: nodes and tangents.
#pragma once

#include <ATen/ATen.h>

#include "binding/grad_node.h"
#include "spmm/binding/spmm_reference.h"
#include "spmm/binding/spmm_saved.h"

namespace gpuopt::spmm {

using namespace autograd_names;

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

// A maximum or minimum.
Tensor extremum_autograd(const Spmm& op, DispatchKeySet keys);

}  // namespace gpuopt::spmm
