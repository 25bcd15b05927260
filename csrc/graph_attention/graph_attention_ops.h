// Attention over a sparse matrix as operators of binding/op.h. A matrix is given as in spmm_ops.h.
#pragma once

#include "spmm/binding/spmm_ops.h"

namespace gpuopt::graph_attention {

using namespace spmm;

// Attention of rows to columns, as AttentionProblem: left (M, H, D), right (K, H, D) in the product
// form, left (M, H), right (K, H) in the additive form, value (K, H, F) and bias (E, H) -> out (M,
// H, F) and the log of the sums of exp(score), (M, H). The second result is zeros where the
// operator is a composition of others.
struct GraphAttention {
  using Result = std::tuple<Tensor, Tensor>;
  static constexpr std::string_view kSchema =
      "_graph_attention(Tensor ptr, Tensor index, Tensor? entry, Tensor left, Tensor right, "
      "Tensor value, Tensor? bias, float factor, Tensor? t_ptr=None, Tensor? t_index=None, "
      "Tensor? t_entry=None) -> (Tensor, Tensor)";
  const Tensor &ptr, &index;
  const TensorOption& entry;
  const Tensor &left, &right, &value;
  const TensorOption& bias;
  double factor;
  const TensorOption &t_ptr, &t_index, &t_entry;
};

// What the rows know of the gradient: the gradient of left, and for each entry and head its weight
// and the gradient of its score, (E, H).
struct GraphAttentionBackward {
  using Result = std::tuple<Tensor, Tensor, Tensor>;
  static constexpr std::string_view kSchema =
      "_graph_attention_backward(Tensor grad, Tensor out, Tensor log_sum, Tensor ptr, Tensor "
      "index, "
      "Tensor? entry, Tensor left, Tensor right, Tensor value, Tensor? bias, float factor) -> "
      "(Tensor, Tensor, Tensor)";
  const Tensor &grad, &out, &log_sum, &ptr, &index;
  const TensorOption& entry;
  const Tensor &left, &right, &value;
  const TensorOption& bias;
  double factor;
};

}  // namespace gpuopt::graph_attention
