// scatter_reduce of rows at an index. A sum is an addition of index_add.h. Others group the entries
// by row, and reduce each group as a row of a sparse matrix without values. The result is bitwise
// reproducible.
#pragma once

#include <ATen/ops/scatter_reduce_ops.h>

#include "override/index_add.h"
#include "override/segment.h"
#include "scatter/scatter_ops.h"
#include "spmm/binding/spmm_ops.h"

namespace gpuopt::overriding {

// self as (before, rows, after), with `rows` for the dimension of the index.
struct RowsOf {
  int64_t before, rows, after;

  RowsOf(const Tensor& self, int64_t dim)
      : before(c10::multiply_integers(self.sizes().slice(0, dim))),
        rows(self.size(dim)),
        after(c10::multiply_integers(self.sizes().slice(dim + 1))) {}
};

// A new tensor of the sizes of self, contiguous.
inline Tensor scatter_reduced(c10::DispatchKeySet key, const Tensor& self, int64_t dim,
                              const Tensor& index, const Tensor& source, std::string_view reduce,
                              bool include_self) {
  const int64_t d = *wrapped(dim, self);
  const auto [before, rows, after] = RowsOf(self, d);
  const std::string_view reduction = *reduction_of(reduce);
  const Tensor entries = row_index(index, d);
  const auto [ptr, perm] = redispatch(segment::GroupBy{entries, rows, std::nullopt}, key);
  const Tensor values = source.reshape({before, index.size(d), after});
  const Tensor before_call = self.reshape({before, rows, after}), counts = counts_of(ptr, 2);
  const TensorOption none, in_order = perm;
  Tensor result;
  if (include_self && reduction == "mean") {  // divided before it is rounded
    const Tensor sums = redispatch(spmm::SpmmWide{ptr, in_order, none, none, values}, key);
    result = sums.add(before_call).div_(counts.add(1)).to(self.scalar_type());
  } else {
    Tensor reduced =
        redispatch(spmm::Spmm{ptr, in_order, none, none, values, reduction, none, none, none}, key);
    if (include_self && reduction == "max") reduced = at::maximum(reduced, before_call);
    if (include_self && reduction == "min") reduced = at::minimum(reduced, before_call);
    result = at::where(counts.gt(0), reduced, before_call);  // any number without entries
  }
  // Dimensions of size 1 get the strides of a new tensor.
  return result.contiguous().view({-1}).view(self.sizes());
}

// Reduces slices at a vector of indices in a fixed order. The slices of self are entries too, if
// they are included.
inline Tensor reduced_at(c10::DispatchKeySet key, const Tensor& self, int64_t dim,
                         const Tensor& index, const Tensor& source, std::string_view reduce,
                         bool include_self) {
  const int64_t rows = self.size(dim);
  // A product may be infinite without self, and finite with it.
  const auto wide = reduce == "prod" ? at::kDouble : wide_type(self);
  Tensor entries = index, values = source.to(wide);
  if (include_self) {
    entries = at::cat({at::arange(rows, index.options()), index});
    values = at::cat({self.to(wide), values}, dim);
  }
  const Tensor reduced =
      redispatch(scatter::Scatter{values, dim, entries, rows, *reduction_of(reduce)}, key)
          .to(self.scalar_type());
  if (include_self) return reduced;
  at::DimVector sizes(self.dim(), 1);
  sizes[dim] = rows;
  const Tensor found = at::zeros({rows}, self.options().dtype(at::kBool));
  return at::where(found.index_fill_(0, index.to(at::kLong), true).view(sizes), reduced, self);
}

// Products at any index. ATen has no deterministic kernel for them. Elements of self are slices.
inline Reason decide_product(const Tensor& self, int64_t dim, const Tensor& index,
                             const Tensor& source) {
  if (!is_deterministic() || !is_plain(self) || !is_plain(index) || !is_plain(source)) {
    return Reason::kUnsupported;
  }
  if (!is_real_float(self.scalar_type())) return Reason::kDtype;
  const std::optional<int64_t> dimension = wrapped(dim, self);
  bool fit = dimension.has_value() && index.scalar_type() == at::kLong &&
             source.scalar_type() == self.scalar_type() && on_device_of(self, {index, source}) &&
             index.dim() == self.dim() && source.dim() == self.dim() && has_no_overlap(self) &&
             !self.is_alias_of(source) && !self.is_alias_of(index);
  for (int64_t d = 0; fit && d < self.dim(); ++d) {
    fit = index.size(d) <= source.size(d) && (d == *dimension || index.size(d) <= self.size(d));
  }
  return fit ? Reason::kTaken : Reason::kUnsupported;
}

inline Tensor product_at(c10::DispatchKeySet key, const Tensor& self, int64_t dim,
                         const Tensor& index, const Tensor& source, bool include_self) {
  Tensor position = index, values = source;
  int64_t stride = 1;
  for (int64_t d = self.dim() - 1; d >= 0; --d) {
    at::DimVector sizes(self.dim(), 1);
    sizes[d] = index.size(d);
    values = values.narrow(d, 0, index.size(d));
    if (d == *wrapped(dim, self)) {
      position = position.add(index, stride - 1);
    } else {
      position = position.add(at::arange(index.size(d), index.options()).view(sizes), stride);
    }
    stride *= self.size(d);
  }
  return reduced_at(key, self.reshape({-1}), 0, position.reshape({-1}), values.reshape({-1}),
                    "prod", include_self)
      .view(self.sizes());
}

struct ScatterReduce {
  using Aten = at::_ops::scatter_reduce_two;
  static constexpr Operator kOperator = operator_named("scatter_reduce");

  static Reason decide(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                       std::string_view reduce, bool include_self) {
    if (reduce == "sum") {
      return include_self ? ScatterAdd::decide(self, dim, index, source) : Reason::kUnsupported;
    }
    if (reduce == "prod") return decide_product(self, dim, index, source);
    if (reduce != "mean" && reduce != "amax" && reduce != "amin") return Reason::kUnsupported;
    const Reason known = decide_rows(self, dim, index, source);
    if (known != Reason::kTaken) return known;
    const int64_t d = *wrapped(dim, self);
    return unless_always([&] {
      const policy::Addition add = addition_of(self, source, index.size(d), self.size(d));
      return policy::scatter_reduce(add, RowsOf(self, d).after);
    });
  }
  static Tensor run(c10::DispatchKeySet key, const Tensor& self, int64_t dim, const Tensor& index,
                    const Tensor& source, std::string_view reduce, bool include_self) {
    if (reduce == "sum") return ScatterAdd::run(key, self, dim, index, source);
    if (reduce == "prod") return product_at(key, self, dim, index, source, include_self);
    return scatter_reduced(key, self, dim, index, source, reduce, include_self);
  }
};

struct ScatterReduceInplace : ScatterReduce {
  using Aten = at::_ops::scatter_reduce__two;

  static Tensor& run(c10::DispatchKeySet key, Tensor& self, int64_t dim, const Tensor& index,
                     const Tensor& source, std::string_view reduce, bool include_self) {
    if (reduce == "sum") return ScatterAddInplace::run(key, self, dim, index, source);
    return self.copy_(ScatterReduce::run(key, self, dim, index, source, reduce, include_self));
  }
};

// Takes destinations that need not be resized, and share no memory with other arguments.
struct ScatterReduceOut : ScatterReduce {
  using Aten = at::_ops::scatter_reduce_two_out;

  static Reason decide(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                       std::string_view reduce, bool include_self, const Tensor& out) {
    if (!self.defined() ||
        !is_destination(out, self.sizes(), self.scalar_type(), {self, index, source}))
      return Reason::kUnsupported;
    return ScatterReduce::decide(self, dim, index, source, reduce, include_self);
  }
  static Tensor& run(c10::DispatchKeySet key, const Tensor& self, int64_t dim, const Tensor& index,
                     const Tensor& source, std::string_view reduce, bool include_self,
                     Tensor& out) {
    return out.copy_(ScatterReduce::run(key, self, dim, index, source, reduce, include_self));
  }
};

}  // namespace gpuopt::overriding
