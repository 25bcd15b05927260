// What derivatives of sparse products share.
#pragma once

#include <ATen/ATen.h>

#include "binding/grad_node.h"
#include "spmm/binding/spmm_reference.h"
#include "spmm/binding/spmm_saved.h"

namespace gpuopt::spmm {

using namespace autograd_names;

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

 protected:
  SavedMatrix matrix_;
  Saved value_{this}, dense_{this}, arg_{this};
  int64_t row_dim_;
  bool has_heads_;
};

// A maximum or minimum.
Tensor extremum_autograd(const Spmm& op, DispatchKeySet keys);

}  // namespace gpuopt::spmm
