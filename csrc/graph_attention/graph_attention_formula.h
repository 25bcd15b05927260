// Attention over a sparse matrix: checks, and the composition of differentiable operators that it
// is on the CPU, for heads that are not vectors, and in derivatives that the kernels don't compute.
#pragma once

#include <ATen/ATen.h>

#include "binding/dtypes.h"
#include "graph_attention/graph_attention.h"
#include "graph_attention/graph_attention_ops.h"
#include "index_select/index_select_ops.h"
#include "segment/segment_ops.h"
#include "spmm/binding/spmm_grad.h"

namespace gpuopt::graph_attention {

// Of GraphAttention or GraphAttentionBackward.
template <typename Op>
Shape check_attention(const Op& call) {
  const char* op = name_of<Op>();
  const auto& [left, right, value] = std::tie(call.left, call.right, call.value);
  check_floating(op, {"value", value});
  check_like(op, {"left", left}, {"value", value});
  check_like(op, {"right", right}, {"value", value});
  TORCH_CHECK(value.dim() == 3, op, ": value must be (columns, heads, features): got shape ",
              value.sym_sizes());
  check_device_of(op, {"ptr", call.ptr}, {"value", value});
  Shape shape;
  shape.has_heads = true;
  shape.columns = value.sym_size(0);
  shape.entries = check_matrix(op, call.ptr, call.index, call.entry, shape.columns);
  shape.rows = call.ptr.sym_size(0) - 1;
  const SymInt heads = value.sym_size(1);
  const auto check_sizes = [&](const char* name, const Tensor& tensor, at::SymIntArrayRef sizes) {
    TORCH_CHECK(may_have_shape(tensor, sizes), op, ": ", name,
                " must match value, the matrix and left: expected shape ", sizes, ", got ",
                tensor.sym_sizes());
  };
  at::SymDimVector sizes{shape.rows, heads};
  if (left.dim() == 3) sizes.push_back(left.sym_size(2));
  check_sizes("left", left, sizes);
  sizes[0] = shape.columns;
  check_sizes("right", right, sizes);
  if (is_given(call.bias)) {
    check_like(op, {"bias", *call.bias}, {"value", value});
    check_sizes("bias", *call.bias, {shape.entries, heads});
  }
  if constexpr (requires { call.t_ptr; }) check_transpose(op, call, shape);
  if constexpr (requires { call.grad; }) {
    for (const auto& [name, tensor] : {std::pair("grad", &call.grad), {"out", &call.out}}) {
      check_like(op, {name, *tensor}, {"value", value});
      check_sizes(name, *tensor, {shape.rows, heads, value.sym_size(2)});
    }
    check_sizes("log_sum", call.log_sum, {shape.rows, heads});
  }
  return shape;
}

inline bool is_product_form(const Tensor& left) { return left.dim() == 3; }

// Whether the kernels compute a checked call.
template <typename Op>
bool is_fused(const Op& op) {
  const auto size = [](const Tensor& tensor, int64_t d) {
    return tensor.sym_size(d).guard_int(__FILE__, __LINE__);
  };
  if (!op.value.is_cuda()) return false;
  const int64_t key = is_product_form(op.left) ? size(op.left, 2) : 0;
  if (is_product_form(op.left) && key == 0) return false;  // 0 stands for the additive form
  return heads_are_vectors(key, size(op.value, 2), to_dtype(name_of<Op>(), op.value.scalar_type()));
}

// The formulas of attention in differentiable operators. What is undefined is not given. Scores and
// weights of half types are computed in float32.
struct AttentionFormula {
  Sparse a, transpose;
  Tensor left, right, value, bias;
  double factor;

  Tensor out() const {
    if (is_half()) return wide().out().to(value.scalar_type());
    return product(a, in_value_order(weights(scores())), value, transpose);
  }

  // The results of GraphAttentionBackward.
  GraphAttentionBackward::Result of_rows(const Tensor& grad) const {
    if (is_half()) {
      const auto dtype = value.scalar_type();
      const auto [left_grad, weight, score_grad] = wide().of_rows(grad.to(at::kFloat));
      return {left_grad.to(dtype), weight.to(dtype), score_grad.to(dtype)};
    }
    const Tensor score = scores(), weight = weights(score);
    const Tensor weight_grad = in_row_order(products(grad, value));
    Tensor score_grad =
        in_value_order(call(segment::SegmentSoftmaxBackward{weight_grad, weight, a.ptr}));
    if (is_product_form(left)) {
      return {product(a, score_grad, right, transpose).mul(factor), in_value_order(weight),
              score_grad};
    }
    score_grad = at::leaky_relu_backward(score_grad, score, factor, /*self_is_result=*/false);
    return {sums(a, score_grad), in_value_order(weight), score_grad};
  }

  // The gradients of right and value, of what columns need of each entry.
  Tensor right_grad(const Tensor& score_grad) const {
    return is_product_form(left) ? product(transpose, score_grad, left.mul(factor), a)
                                 : sums(transpose, score_grad);
  }
  Tensor value_grad(const Tensor& weight, const Tensor& grad) const {
    return product(transpose, weight, grad, a);
  }

 private:
  bool is_half() const { return at::isReducedFloatingType(value.scalar_type()); }
  AttentionFormula wide() const {
    const auto to_float = [](const Tensor& x) { return x.defined() ? x.to(at::kFloat) : x; };
    return {a, transpose, to_float(left), to_float(right), to_float(value), to_float(bias), factor};
  }
  // For each entry and head, in the order of values: the products of two rows.
  Tensor products(const Tensor& of_row, const Tensor& of_column) const {
    return call(Sddmm{a.ptr, a.index, if_defined(a.entry), of_row, of_column, /*heads=*/true,
                      if_defined(transpose.ptr), if_defined(transpose.index),
                      if_defined(transpose.entry)});
  }
  // Sums over the rows of a matrix of what its entries have, (E, H).
  static Tensor sums(const Sparse& matrix, const Tensor& of_entries) {
    return call(Spmm{matrix.ptr, if_defined(matrix.entry), std::nullopt, std::nullopt, of_entries,
                     "sum", std::nullopt, std::nullopt, std::nullopt});
  }
  // The scores in the order of values, before the leaky ReLU of the additive form. The sum of two
  // numbers is the product of (left, 1) and (1, right), which is exact. So its gradients are
  // products with the transpose, too.
  Tensor scores() const {
    const Tensor found = is_product_form(left)
                             ? products(left.mul(factor), right)
                             : products(at::stack({left, at::ones_like(left)}, -1),
                                        at::stack({at::ones_like(right), right}, -1));
    return bias.defined() ? found.add(bias) : found;
  }
  // In the order of rows, in which the entries of a row are a segment.
  Tensor weights(const Tensor& score) const {
    const Tensor x = is_product_form(left) ? score : at::leaky_relu(score, factor);
    return call(segment::SegmentSoftmax{in_row_order(x), a.ptr});
  }
  Tensor in_row_order(const Tensor& x) const {
    return a.entry.defined() ? call(IndexSelect{x, 0, a.entry}) : x;
  }
  Tensor in_value_order(const Tensor& x) const {
    if (!a.entry.defined()) return x;
    const Tensor numbers = at::arange(at::Scalar(a.entry.sym_size(0)), a.entry.options());
    const Tensor position = at::zeros_like(numbers).scatter(0, a.entry.to(at::kLong), numbers);
    return call(IndexSelect{x, 0, position});
  }
};

template <typename Op>
AttentionFormula formula_of(const Op& op) {
  Sparse transpose;
  if constexpr (requires { op.t_ptr; }) transpose = transpose_of(op);
  return {matrix_of(op), transpose, op.left, op.right, op.value, value_or_undefined(op.bias),
          op.factor};
}

// The second result is zeros, as nothing reads it.
inline GraphAttention::Result composed(const GraphAttention& op) {
  const Shape shape = check_attention(op);
  const auto options = op.value.options().dtype(compute_type(op.value));
  return {formula_of(op).out(), at::zeros_symint({shape.rows, op.value.sym_size(1)}, options)};
}

inline GraphAttentionBackward::Result composed_backward(const GraphAttentionBackward& op) {
  check_attention(op);
  return formula_of(op).of_rows(op.grad);
}

}  // namespace gpuopt::graph_attention
