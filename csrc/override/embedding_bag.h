// Bags of an embedding, nn.EmbeddingBag, and their gradients. Sparse gradients, and gradients that
// are scaled by frequency, stay ATen's.
//
// The forward pass returns what ATen's CUDA kernel returns: the bags, the bag of each entry, the
// sizes of the bags and the rows of maxima. ATen's formulas of derivatives read these.
#pragma once

#include <ATen/ops/_embedding_bag_dense_backward_ops.h>
#include <ATen/ops/_embedding_bag_forward_only_ops.h>
#include <ATen/ops/_embedding_bag_ops.h>
#include <ATen/ops/_embedding_bag_per_sample_weights_backward_ops.h>

#include <initializer_list>

#include "index_select/index_select_ops.h"
#include "override/deterministic/shared.h"
#include "override/segment.h"
#include "spmm/binding/spmm_ops.h"

namespace gpuopt::overriding {

constexpr int64_t kSumOfBags = 0, kMeanOfBags = 1, kMaxOfBags = 2;  // ATen's modes

inline int64_t row_bytes_of(const Tensor& matrix) {
  return matrix.size(1) * static_cast<int64_t>(matrix.element_size());
}

// Whether there are rows of a measured dtype, and vectors of integers beside them.
inline Reason decide_bags(const Tensor& rows, std::initializer_list<Tensor> vectors) {
  if (!is_plain(rows) || rows.dim() != 2) return Reason::kUnsupported;
  for (const Tensor& vector : vectors) {
    if (!is_plain(vector) || vector.dim() != 1 || !is_index(vector) ||
        !on_device_of(rows, {vector})) {
      return Reason::kUnsupported;
    }
  }
  return is_measured(rows.scalar_type()) ? Reason::kTaken : Reason::kDtype;
}

// Whether kernels read the rows of a table without a copy of it.
inline Reason decide_table(const Tensor& table) {
  if (table.size(0) >= int64_t{1} << 31) return Reason::kUnsupported;
  return table.stride(1) == 1 || table.size(1) == 1 ? Reason::kTaken : Reason::kLayout;
}

// Whether there are no weights of entries, or one of this dtype for each.
inline bool fits_entries(const TensorOption& value, const Tensor& index, const Tensor& rows) {
  return !is_given(value) ||
         (is_plain(*value) && value->sizes() == index.sizes() &&
          value->scalar_type() == rows.scalar_type() && on_device_of(rows, {*value}));
}

// ---------------------------------------------------------------- forward

template <typename AtenOp>
struct EmbeddingBagForward {
  using Aten = AtenOp;
  static constexpr Operator kOperator = operator_named("_embedding_bag");

  static Reason decide(const Tensor& weight, const Tensor& index, const Tensor& offsets, bool,
                       int64_t mode, bool, const TensorOption& value, bool include_last_offset,
                       int64_t) {
    const Reason known = decide_bags(weight, {index, offsets});
    if (known != Reason::kTaken) return known;
    const bool fit = offsets.numel() > (include_last_offset ? 1 : 0) && mode >= kSumOfBags &&
                     mode <= kMaxOfBags && fits_entries(value, index, weight) &&
                     (mode == kSumOfBags || !is_given(value));
    if (!fit) return Reason::kUnsupported;
    const Reason readable = decide_table(weight);
    if (readable != Reason::kTaken) return readable;
    return unless_always(
        [&] { return policy::embedding_bag(index.numel(), row_bytes_of(weight)); });
  }

  // ATen computes with int64 if one of index and offsets is int64.
  static spmm::EmbeddingBag::Result run(c10::DispatchKeySet key, const Tensor& weight,
                                        const Tensor& index, const Tensor& offsets, bool,
                                        int64_t mode, bool, const TensorOption& value,
                                        bool include_last_offset, int64_t padding_idx) {
    const auto number = at::promote_types(index.scalar_type(), offsets.scalar_type());
    return redispatch(spmm::EmbeddingBag{weight, index.to(number), offsets.to(number), value, mode,
                                         include_last_offset, padding_idx},
                      key);
  }
};

using EmbeddingBag = EmbeddingBagForward<at::_ops::_embedding_bag>;
using EmbeddingBagOnly = EmbeddingBagForward<at::_ops::_embedding_bag_forward_only>;

// ---------------------------------------------------------------- gradient of the table

// Sums and means: rows are added to zeros, or a product with the transposed matrix of bags, whose
// rows a sort gives, writes each row of the gradient once, named or not. Maxima are taken in
// deterministic mode, in which ATen refuses them.
struct EmbeddingBagBackward {
  using Aten = at::_ops::_embedding_bag_dense_backward;
  static constexpr Operator kOperator = operator_named("_embedding_bag_dense_backward");

  static Reason decide(const Tensor& grad, const Tensor& index, const Tensor& bag_of,
                       const Tensor& size, const Tensor& maximum, const c10::SymInt& rows,
                       bool scale_grad_by_freq, int64_t mode, const TensorOption& value, int64_t) {
    if (mode == kMaxOfBags) return decide_maximum(grad, size, maximum, rows);
    const Reason known = decide_bags(grad, {index, bag_of, size});
    if (known != Reason::kTaken) return known;
    const int64_t all = rows.maybe_as_int().value_or(0);
    const bool fit = !scale_grad_by_freq && bag_of.sizes() == index.sizes() && all > 0 &&
                     all < int64_t{1} << 31 && fits_entries(value, index, grad) &&
                     (mode == kSumOfBags || (size.numel() >= grad.size(0) && !is_given(value)));
    if (!fit) return Reason::kUnsupported;
    return unless_always(
        [&] { return policy::embedding_bag_backward(index.numel(), row_bytes_of(grad)); });
  }

  static Tensor run(c10::DispatchKeySet key, const Tensor& grad, const Tensor& index,
                    const Tensor& bag_of, const Tensor& size, const Tensor& maximum,
                    const c10::SymInt& rows, bool, int64_t mode, const TensorOption& value,
                    int64_t padding_idx) {
    const int64_t all = rows.expect_int();
    if (mode == kMaxOfBags) return of_maxima(key, grad, size, maximum, all);
    const Tensor of_bags =
        mode == kSumOfBags ? grad
                           : grad.div(size.narrow(0, 0, grad.size(0)).clamp_min(1).unsqueeze_(1));
    const bool adds = !is_given(value) && policy::adds_bags(index.numel(), all, row_bytes_of(grad));
    Tensor result = adds ? added(key, of_bags, index, bag_of, all)
                         : transposed(key, of_bags, index, bag_of, all, value);
    if (padding_idx >= 0) result.select(0, padding_idx).zero_();
    return result;
  }

 private:
  static Tensor added(c10::DispatchKeySet key, const Tensor& of_bags, const Tensor& index,
                      const Tensor& bag_of, int64_t rows) {
    Tensor result = at::zeros({rows, of_bags.size(1)}, of_bags.options());
    const Tensor source = redispatch(gpuopt::IndexSelect{of_bags, 0, bag_of}, key);
    handle<Inplace<gpuopt::IndexAdd>>().redispatch(key, result, 0, index, source, 1,
                                                   kDeterministic);
    return result;
  }

  static Tensor transposed(c10::DispatchKeySet key, const Tensor& of_bags, const Tensor& index,
                           const Tensor& bag_of, int64_t rows, const TensorOption& value) {
    const auto [ptr, entry] = redispatch(segment::GroupBy{index, rows, std::nullopt}, key);
    const TensorOption none,
        bag = redispatch(gpuopt::IndexSelect{bag_of, 0, entry}, key).to(ptr.scalar_type());
    const TensorOption place = is_given(value) ? TensorOption(entry) : none;
    return redispatch(spmm::Spmm{ptr, bag, place, value, of_bags, "sum", none, none, none}, key);
  }

  // `maximum` has the row that each value is from.
  static Reason decide_maximum(const Tensor& grad, const Tensor& size, const Tensor& maximum,
                               const c10::SymInt& rows) {
    const Reason known = decide_floats(grad);
    if (known != Reason::kTaken) return known;
    return taken_if(is_plain(grad) && grad.dim() == 2 && is_plain(size) &&
                    size.numel() >= grad.size(0) && is_plain(maximum) && is_index(maximum) &&
                    maximum.sizes() == grad.sizes() && on_device_of(grad, {maximum, size}) &&
                    rows.expect_int() > 0);
  }

  static Tensor of_maxima(c10::DispatchKeySet key, const Tensor& grad, const Tensor& size,
                          const Tensor& maximum, int64_t rows) {
    const int64_t features = grad.size(1);
    const Tensor is_empty = size.narrow(0, 0, grad.size(0)).eq(0).unsqueeze_(1);
    const Tensor index = maximum.to(at::kLong).mul(features).masked_fill_(is_empty, 0);
    index.add_(at::arange(features, index.options()));
    const Tensor values = grad.masked_fill(is_empty, 0);
    return sums_at(key, rows * features, index, values).view({-1, features});
  }
};

// ---------------------------------------------------------------- gradient of weights of entries

struct EmbeddingBagWeightsBackward {
  using Aten = at::_ops::_embedding_bag_per_sample_weights_backward;
  static constexpr Operator kOperator =
      operator_named("_embedding_bag_per_sample_weights_backward");

  static Reason decide(const Tensor& grad, const Tensor& weight, const Tensor& index,
                       const Tensor& offsets, const Tensor&, int64_t mode, int64_t) {
    const Reason known = decide_bags(grad, {index, offsets});
    if (known != Reason::kTaken) return known;
    const int64_t bags = grad.size(0);
    const bool fit = mode == kSumOfBags && is_plain(weight) && weight.dim() == 2 &&
                     weight.scalar_type() == grad.scalar_type() && weight.size(1) == grad.size(1) &&
                     on_device_of(grad, {weight}) &&
                     (offsets.numel() == bags || offsets.numel() == bags + 1);
    if (!fit) return Reason::kUnsupported;
    const Reason readable = decide_table(weight);
    if (readable != Reason::kTaken) return readable;
    return unless_always(
        [&] { return policy::embedding_bag_weights(index.numel(), row_bytes_of(grad)); });
  }

  static Tensor run(c10::DispatchKeySet key, const Tensor& grad, const Tensor& weight,
                    const Tensor& index, const Tensor& offsets, const Tensor&, int64_t,
                    int64_t padding_idx) {
    const auto number = at::promote_types(index.scalar_type(), offsets.scalar_type());
    const Tensor ptr =
        at::constant_pad_nd(offsets.narrow(0, 0, grad.size(0)).to(number), {0, 1}, index.numel());
    const TensorOption none, columns = index.to(number);
    Tensor result =
        redispatch(spmm::Sddmm{ptr, columns, none, grad, weight, false, none, none, none}, key);
    return padding_idx >= 0 ? result.masked_fill_(index.eq(padding_idx), 0) : result;
  }
};

}  // namespace gpuopt::overriding
