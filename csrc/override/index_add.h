// Additions of rows at an index: index_add, scatter_add, index_put and the gradient of an
// embedding. All of them become gpuopt's index_add.
#pragma once

#include <ATen/ops/_index_put_impl_ops.h>
#include <ATen/ops/embedding_dense_backward_ops.h>
#include <ATen/ops/index_add_ops.h>
#include <ATen/ops/scatter_add_ops.h>

#include <cmath>
#include <string_view>

#include "index_add/binding/index_add_ops.h"
#include "override/newer_aten.h"
#include "override/policy.h"
#include "override/predicates.h"

namespace gpuopt::overriding {

// Whether source may be added to self: one dtype and device, no shared memory, and different
// addresses for all elements of self.
inline Reason decide_addition(const Tensor& self, const Tensor& index, const Tensor& source) {
  if (!is_plain(self) || !is_plain(index) || !is_plain(source)) return Reason::kUnsupported;
  if (!is_measured(self.scalar_type())) return Reason::kDtype;
  const bool fit = is_index(index) && source.scalar_type() == self.scalar_type() &&
                   on_device_of(self, {index, source}) && !self.is_alias_of(source) &&
                   !self.is_alias_of(index) && has_no_overlap(self);
  return fit ? Reason::kTaken : Reason::kUnsupported;
}

inline policy::Addition addition_of(const Tensor& self, const Tensor& source, int64_t entries,
                                    int64_t rows) {
  return {self.numel(), source.numel(), static_cast<int64_t>(self.element_size()), entries, rows};
}

inline Reason decide_speed(const policy::Addition& add) {
  return unless_always([&] {
    return unless_newer(kNewRowAdditions && !is_deterministic(),
                        [&] { return policy::index_add(add, is_deterministic()); });
  });
}

// Whether all sizes but that of `dim` are self's.
inline bool has_rows_of(const Tensor& self, const Tensor& source, int64_t dim) {
  if (source.dim() != self.dim()) return false;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (d != dim && source.size(d) != self.size(d)) return false;
  }
  return true;
}

// Atomic additions, which ATen uses, round every partial sum of a half type. In deterministic mode
// both add in a fixed order.
inline std::string_view mode_for(const Tensor& self, int64_t dim, const Tensor& source,
                                 int64_t entries) {
  const int64_t rows = self.size(dim < 0 ? dim + self.dim() : dim);
  const bool accurate = policy::sums_in_float32(addition_of(self, source, entries, rows));
  return accurate ? "accurate" : "fast";
}
constexpr std::string_view kDeterministic = "deterministic";

// ---------------------------------------------------------------- index_add

struct IndexAdd {
  using Aten = at::_ops::index_add;
  static constexpr Operator kOperator = operator_named("index_add");

  static Reason decide(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                       const at::Scalar& alpha) {
    const Reason known = decide_addition(self, index, source);
    if (known != Reason::kTaken) return known;
    const std::optional<int64_t> d = wrapped(dim, self);
    if (!d.has_value() || index.dim() != 1 || !has_rows_of(self, source, *d) ||
        source.size(*d) != index.numel() || !is_simple(alpha)) {
      return Reason::kUnsupported;
    }
    return decide_speed(addition_of(self, source, index.numel(), self.size(*d)));
  }
  static Tensor run(c10::DispatchKeySet key, const Tensor& self, int64_t dim, const Tensor& index,
                    const Tensor& source, const at::Scalar& alpha) {
    return handle<gpuopt::IndexAdd>().redispatch(key, self, dim, index, source, alpha,
                                                 mode_for(self, dim, source, index.numel()));
  }
};

struct IndexAddInplace : IndexAdd {
  using Aten = at::_ops::index_add_;

  static Tensor& run(c10::DispatchKeySet key, Tensor& self, int64_t dim, const Tensor& index,
                     const Tensor& source, const at::Scalar& alpha) {
    return handle<Inplace<gpuopt::IndexAdd>>().redispatch(
        key, self, dim, index, source, alpha, mode_for(self, dim, source, index.numel()));
  }
};

// ---------------------------------------------------------------- scatter_add

// Whether the index was expanded from one entry for each row of source, so that whole rows go to
// rows of self.
inline Reason decide_rows(const Tensor& self, int64_t dim, const Tensor& index,
                          const Tensor& source) {
  const Reason known = decide_addition(self, index, source);
  if (known != Reason::kTaken) return known;
  const std::optional<int64_t> d = wrapped(dim, self);
  if (!d.has_value() || index.scalar_type() != at::kLong || !has_rows_of(self, source, *d) ||
      index.sizes() != source.sizes()) {
    return Reason::kUnsupported;
  }
  for (int64_t other = 0; other < index.dim(); ++other) {
    if (other != *d && index.size(other) != 1 && index.stride(other) != 0) return Reason::kLayout;
  }
  return Reason::kTaken;
}

// The entries of an index that passed decide_rows().
inline Tensor row_index(const Tensor& index, int64_t dim) {
  return at::as_strided(index, {index.size(dim)}, {index.stride(dim)}, index.storage_offset());
}

struct ScatterAdd {
  using Aten = at::_ops::scatter_add;
  static constexpr Operator kOperator = operator_named("scatter_add");

  static Reason decide(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source) {
    const Reason known = decide_rows(self, dim, index, source);
    if (known != Reason::kTaken) return known;
    const int64_t d = *wrapped(dim, self);
    return decide_speed(addition_of(self, source, index.size(d), self.size(d)));
  }
  static Tensor run(c10::DispatchKeySet key, const Tensor& self, int64_t dim, const Tensor& index,
                    const Tensor& source) {
    return handle<gpuopt::IndexAdd>().redispatch(key, self, dim, row_index(index, dim), source, 1,
                                                 mode_for(self, dim, source, index.size(dim)));
  }
};

struct ScatterAddInplace : ScatterAdd {
  using Aten = at::_ops::scatter_add_;

  static Tensor& run(c10::DispatchKeySet key, Tensor& self, int64_t dim, const Tensor& index,
                     const Tensor& source) {
    return handle<Inplace<gpuopt::IndexAdd>>().redispatch(
        key, self, dim, row_index(index, dim), source, 1,
        mode_for(self, dim, source, index.size(dim)));
  }
};

// ---------------------------------------------------------------- index_put

// All forms of index_put call _index_put_impl_, and so does the gradient of self[index]. ATen sorts
// the index and adds in a fixed order, half types in float32, and so does mode `deterministic`.
//
// Supports indices in neighbouring dimensions, as in x[:, i, j]. These dimensions are then one, and
// i * self.size(2) + j is its index.
struct IndexPut {
  using Aten = at::_ops::_index_put_impl_;
  using Indices = c10::List<std::optional<Tensor>>;
  static constexpr Operator kOperator = operator_named("index_put");

  static Reason decide(const Tensor& self, const Indices& indices, const Tensor& values,
                       bool accumulate, bool) {
    const Range range = range_of(indices);
    if (!accumulate || range.count == 0 || range.end() > self.dim()) return Reason::kUnsupported;
    const Tensor first = *indices.get(range.first);
    for (int64_t k = 0; k < range.count; ++k) {
      const Tensor index = *indices.get(range.first + k);
      const Reason known = decide_addition(self, index, values);
      if (known != Reason::kTaken) return known;
      if (index.sizes() != first.sizes()) return Reason::kUnsupported;
    }
    if (!has_shape(values, self, range, first.sizes())) return Reason::kUnsupported;
    if (!is_one_dimension(self, range)) return Reason::kLayout;
    return unless_always([&] {
      const int64_t rows = rows_in(self, range);
      return policy::index_put(addition_of(self, values, first.numel(), rows).bytes(), range.count);
    });
  }
  static Tensor& run(c10::DispatchKeySet key, Tensor& self, const Indices& indices,
                     const Tensor& values, bool, bool) {
    const Range range = range_of(indices);
    const Tensor index = as_one(self, indices, range);
    at::DimVector sizes(self.sizes()), strides(self.strides());
    const auto merge = [&](at::DimVector& of, int64_t size) {
      of.erase(of.begin() + range.first, of.begin() + range.end());
      of.insert(of.begin() + range.first, size);
    };
    merge(sizes, rows_in(self, range));
    merge(strides, self.stride(range.end() - 1));
    Tensor rows = range.count == 1 ? self : at::as_strided(self, sizes, strides);
    sizes[range.first] = index.numel();
    handle<Inplace<gpuopt::IndexAdd>>().redispatch(key, rows, range.first, index,
                                                   values.reshape(sizes), 1, kDeterministic);
    return self;
  }

 private:
  // The dimensions that have an index.
  struct Range {
    int64_t first = 0, count = 0;
    int64_t end() const { return first + count; }
  };

  // Counts no dimensions if there are none, or if others are between them.
  static Range range_of(const Indices& indices) {
    Range range;
    for (size_t d = 0; d < indices.size(); ++d) {
      const std::optional<Tensor> index = indices.get(d);
      if (!index.has_value() || !index->defined()) continue;
      const auto dim = static_cast<int64_t>(d);
      if (range.count == 0) range.first = dim;
      if (dim != range.end()) return {};
      ++range.count;
    }
    return range;
  }

  static int64_t rows_in(const Tensor& self, const Range& range) {
    return c10::multiply_integers(self.sizes().slice(range.first, range.count));
  }

  // Whether one stride steps through the dimensions of the range.
  static bool is_one_dimension(const Tensor& self, const Range& range) {
    for (int64_t d = range.first; d + 1 < range.end(); ++d) {
      if (self.stride(d) != self.stride(d + 1) * self.size(d + 1)) return false;
    }
    return true;
  }

  // Whether values has the index's shape in place of the range.
  static bool has_shape(const Tensor& values, const Tensor& self, const Range& range,
                        at::IntArrayRef index) {
    at::DimVector shape(self.sizes().slice(0, range.first));
    shape.append(index.begin(), index.end());
    const at::IntArrayRef last = self.sizes().slice(range.end());
    shape.append(last.begin(), last.end());
    return values.sizes() == at::IntArrayRef(shape);
  }

  // The index of the merged dimension. Negative entries count from the end. Entries out of range
  // stay out of range.
  static Tensor as_one(const Tensor& self, const Indices& indices, const Range& range) {
    Tensor result;
    for (int64_t d = range.first; d < range.end(); ++d) {
      const Tensor index = indices.get(d)->reshape({-1});
      const int64_t size = self.size(d);
      const Tensor counted = at::add(index, index.lt(0), size);
      if (d == range.first) {
        result = range.count == 1 ? counted : counted.to(at::kLong);
        continue;
      }
      const Tensor outside = at::ne(at::clamp(counted, 0, size - 1), counted);
      result = at::add(counted, result, size).masked_fill_(outside, rows_in(self, range));
    }
    return result;
  }
};

// ---------------------------------------------------------------- embedding_dense_backward

// ATen's gradient is repeatable and sums half types in float32. Mode `deterministic` does the same.
struct EmbeddingDenseBackward {
  using Aten = at::_ops::embedding_dense_backward;
  static constexpr Operator kOperator = operator_named("embedding_dense_backward");

  static Reason decide(const Tensor& grad, const Tensor& indices, const c10::SymInt& num_weights,
                       const c10::SymInt& padding_idx, bool scale_grad_by_freq) {
    if (scale_grad_by_freq || !is_plain(grad) || !is_plain(indices)) return Reason::kUnsupported;
    if (!is_measured(grad.scalar_type())) return Reason::kDtype;
    const int64_t rows = num_weights.maybe_as_int().value_or(0);
    const int64_t padding = padding_idx.maybe_as_int().value_or(rows);
    if (!is_index(indices) || !on_device_of(grad, {indices}) || rows <= 0 || padding >= rows ||
        grad.dim() != indices.dim() + 1 ||
        grad.sizes().slice(0, indices.dim()) != indices.sizes()) {
      return Reason::kUnsupported;
    }
    return unless_always(
        [&] { return policy::embedding_backward(indices.numel(), bytes_of(grad)); });
  }
  static Tensor run(c10::DispatchKeySet key, const Tensor& grad, const Tensor& indices,
                    const c10::SymInt& num_weights, const c10::SymInt& padding_idx, bool) {
    Tensor result = at::zeros({num_weights.expect_int(), grad.size(-1)}, grad.options());
    handle<Inplace<gpuopt::IndexAdd>>().redispatch(key, result, 0, indices.reshape({-1}),
                                                   grad.reshape({-1, grad.size(-1)}), 1,
                                                   kDeterministic);
    const int64_t padding = padding_idx.expect_int();
    if (padding >= 0) result.select(0, padding).zero_();
    return result;
  }
};

}  // namespace gpuopt::overriding
