// The schemas, CPU kernels and Meta kernels of sparse products. CPU kernels call ATen's operators,
// which need memory for a row of each entry. Half types are computed in float32.
#include <ATen/ATen.h>

#include "spmm/binding/spmm_reference.h"

namespace gpuopt::spmm {
namespace {

TORCH_LIBRARY_FRAGMENT(gpuopt, m) { define<Spmm, SpmmArg, SpmmSelected, Sddmm, Transpose>(m); }

// ---------------------------------------------------------------- CPU

// Dense rows as (batches, rows, heads, features).
Tensor with_heads(const Tensor& dense, const Shape& shape) {
  const auto sizes = dense.sizes();
  const auto product = [&](int64_t first, int64_t last) {
    return c10::multiply_integers(sizes.begin() + first, sizes.begin() + last);
  };
  const int64_t inner = shape.row_dim + 1;
  const int64_t heads = shape.has_heads ? sizes[inner] : 1;
  const int64_t features = product(inner + (shape.has_heads ? 1 : 0), dense.dim());
  return dense.reshape({product(0, shape.row_dim), sizes[shape.row_dim], heads, features});
}

int64_t known(const SymInt& size) { return size.guard_int(__FILE__, __LINE__); }

// What each entry contributes: value[entry[e]] * dense[b, index[e]], (batches, E, heads, features).
template <typename Op>
Tensor products(const Op& call, const Shape& shape) {
  const auto dtype = compute_type(call.dense);
  Tensor rows = with_heads(call.dense, shape).to(dtype);
  if (is_given(call.index)) rows = rows.index_select(1, *call.index);
  if (!is_given(call.value)) return rows;
  Tensor value = call.value->to(dtype);
  if (is_given(call.entry)) value = value.index_select(0, *call.entry);
  return rows * value.view({known(shape.entries), rows.size(2), 1});
}

// The position of each entry in the values.
template <typename Op>
Tensor positions(const Op& call, const Shape& shape) {
  return is_given(call.entry) ? *call.entry : at::arange(known(shape.entries), call.ptr.options());
}

Tensor sums(const Tensor& ptr, const Tensor& products) {
  auto sizes = products.sizes().vec();
  sizes[1] = ptr.size(0) - 1;
  return at::zeros(sizes, products.options())
      .index_add_(1, rows_of(ptr, products.size(1)), products);
}

Tensor counts_of(const Tensor& ptr) { return ptr.slice(0, 1) - ptr.slice(0, 0, -1); }

// As a result of the call: its sizes and dtype.
Tensor finished(const Tensor& result, const Tensor& dense, const Shape& shape) {
  return result.to(dense.scalar_type()).reshape_symint(shape.result(dense)).contiguous();
}

SpmmArg::Result extremum(const SpmmArg& call) {
  const Shape shape = check(call);
  const bool is_max = call.reduce == "max";
  const char* mode = is_max ? "amax" : "amin";
  const Tensor all = products(call, shape);
  auto sizes = all.sizes().vec();
  sizes[1] = known(shape.rows);
  const Tensor rows = rows_of(call.ptr, shape.entries).to(at::kLong);
  const Tensor of_all = rows.view({-1, 1, 1}).expand_as(all);
  const double worst = is_max ? -INFINITY : INFINITY;
  const Tensor best = at::full(sizes, worst, all.options()).scatter_reduce(1, of_all, all, mode);
  // The first entry that equals the result, or the first NaN.
  const int64_t none = known(shape.entries);
  const Tensor numbers = at::arange(none, rows.options()).view({-1, 1, 1});
  const Tensor wins = all.eq(best.index_select(1, rows)).logical_or_(all.isnan());
  const Tensor first = at::full(sizes, none, rows.options())
                           .scatter_reduce(1, of_all, at::where(wins, numbers, none), "amin");
  const Tensor is_empty = counts_of(call.ptr).eq(0).view({-1, 1, 1});
  Tensor arg = first;
  if (none > 0) {
    const Tensor own = first.clamp_max(none - 1).flatten();
    arg = positions(call, shape).index_select(0, own).view(sizes);
  }
  arg = arg.masked_fill(is_empty, -1).to(call.ptr.scalar_type());
  return {finished(best.masked_fill(is_empty, 0), call.dense, shape),
          arg.reshape_symint(shape.result(call.dense)).contiguous()};
}

Tensor spmm_cpu(const Spmm& call) {
  const Shape shape = check(call);
  const auto& [ptr, index, entry, value, dense, reduce, t_ptr, t_index, t_entry] = call;
  if (is_extremum(reduce)) {
    return std::get<0>(extremum({ptr, index, entry, value, dense, reduce}));
  }
  Tensor result = sums(ptr, products(call, shape));
  if (reduce == "mean") result.div_(counts_of(ptr).clamp_min(1).view({-1, 1, 1}));
  return finished(result, dense, shape);
}

Tensor selected_cpu(const SpmmSelected& call) {
  const Shape shape = check(call);
  Tensor selected = with_heads(call.selected, shape);
  if (is_given(call.index)) selected = selected.index_select(1, *call.index);
  const Tensor counts = selected.eq(positions(call, shape).view({-1, 1, 1}));
  const Tensor all = at::where(counts, products(call, shape), 0);
  return finished(sums(call.ptr, all), call.dense, shape);
}

Tensor sddmm_cpu(const Sddmm& call) {
  const Shape shape = check(call);
  const auto dtype = compute_type(call.a);
  const Tensor left = call.a.to(dtype).index_select(0, rows_of(call.ptr, shape.entries));
  const Tensor right = call.b.to(dtype);
  const Tensor products =
      left * (is_given(call.index) ? right.index_select(0, *call.index) : right);
  const Tensor result = products.sum(-1).to(call.a.scalar_type());
  if (!is_given(call.entry)) return result;
  return at::empty_like(result).index_copy_(0, call.entry->to(at::kLong), result);
}

TORCH_LIBRARY_IMPL(gpuopt, CPU, m) {
  impl<Spmm, spmm_cpu>(m);
  impl<SpmmArg, extremum>(m);
  impl<SpmmSelected, selected_cpu>(m);
  impl<Sddmm, sddmm_cpu>(m);
  impl<Transpose, transpose_by_aten>(m);
}

// ---------------------------------------------------------------- Meta: shapes, possibly symbolic

template <typename Op>
Tensor spmm_meta(const Op& call) {
  return at::empty_symint(check(call).result(call.dense), call.dense.options());
}

SpmmArg::Result arg_meta(const SpmmArg& call) {
  const auto sizes = check(call).result(call.dense);
  return {at::empty_symint(sizes, call.dense.options()),
          at::empty_symint(sizes, call.ptr.options())};
}

Tensor sddmm_meta(const Sddmm& call) {
  const Shape shape = check(call);
  at::SymDimVector sizes{shape.entries};
  if (call.heads) sizes.push_back(call.a.sym_size(1));
  return at::empty_symint(sizes, call.a.options());
}

Transpose::Result transpose_meta(const Transpose& call) {
  check(call);
  const SymInt entries = call.index.sym_size(0);
  const auto vector = [&](const SymInt& size) {
    return at::empty_symint({size}, call.ptr.options());
  };
  return {vector(call.columns + 1), vector(entries), vector(entries)};
}

TORCH_LIBRARY_IMPL(gpuopt, Meta, m) {
  impl<Spmm, spmm_meta<Spmm>>(m);
  impl<SpmmArg, arg_meta>(m);
  impl<SpmmSelected, spmm_meta<SpmmSelected>>(m);
  impl<Sddmm, sddmm_meta>(m);
  impl<Transpose, transpose_meta>(m);
}

}  // namespace
}  // namespace gpuopt::spmm
