// The schemas, CPU kernels and Meta kernels of sparse products. CPU kernels call ATen's
// operators, which need memory for a row of each entry. Half types are computed in float32.
#include <ATen/ATen.h>

#include "binding/ladder.h"
#include "segment/segment_ops.h"
#include "spmm/binding/spmm_reference.h"
#include "spmm/ladder/spmm_ladder.h"

namespace gpuopt::spmm {
namespace {

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  define<Spmm, SpmmWide, SpmmArg, SpmmSelected, Sddmm, EmbeddingBag>(m);
}

const RegisterLadder ladder(
    kLadder, "spmm(Tensor ptr, Tensor index, Tensor? value, Tensor dense, int step) -> Tensor");

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

// As a result of the call: its sizes and dtype.
Tensor finished(const Tensor& result, const Tensor& dense, const Shape& shape) {
  return result.to(dense.scalar_type()).reshape_symint(shape.result(dense)).contiguous();
}

// The products are the segments of gpuopt::segment_reduce, with their other dimensions as features.
SpmmArg::Result extremum(const SpmmArg& call) {
  const Shape shape = check(call);
  const auto [rows, first] = gpuopt::call(segment::SegmentReduceArg{
      products(call, shape).movedim(1, 0), call.ptr, call.reduce, std::nullopt});
  Tensor arg = first;
  if (is_given(call.entry) && known(shape.entries) > 0) {
    const Tensor found = call.entry->index_select(0, first.clamp_min(0).flatten());
    arg = found.view(first.sizes()).masked_fill(first.lt(0), -1);
  }
  return {finished(rows.movedim(0, 1), call.dense, shape),
          arg.movedim(0, 1).reshape_symint(shape.result(call.dense)).contiguous()};
}

Tensor spmm_cpu(const Spmm& call) {
  const Shape shape = check(call);
  const auto& [ptr, index, entry, value, dense, reduce, t_ptr, t_index, t_entry] = call;
  if (is_extremum(reduce)) {
    return std::get<0>(extremum({ptr, index, entry, value, dense, reduce}));
  }
  Tensor result = sums(ptr, products(call, shape));
  if (reduce == "mean") result.div_(ptr.diff().clamp_min(1).view({-1, 1, 1}));
  return finished(result, dense, shape);
}

Tensor wide_cpu(const SpmmWide& call) {
  const Shape shape = check(call);
  return sums(call.ptr, products(call, shape)).reshape_symint(shape.result(call.dense));
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

EmbeddingBag::Result bags_cpu(const EmbeddingBag& call) {
  return at::_embedding_bag(call.weight, call.index.contiguous(), call.offsets.contiguous(), false,
                            call.mode, false, call.value, call.include_last_offset,
                            call.padding_idx);
}

TORCH_LIBRARY_IMPL(gpuopt, CPU, m) {
  impl<EmbeddingBag, bags_cpu>(m);
  impl<Spmm, spmm_cpu>(m);
  impl<SpmmWide, wide_cpu>(m);
  impl<SpmmArg, extremum>(m);
  impl<SpmmSelected, selected_cpu>(m);
  impl<Sddmm, sddmm_cpu>(m);
}

// ---------------------------------------------------------------- Meta: shapes, possibly symbolic

template <typename Op>
Tensor spmm_meta(const Op& call) {
  constexpr bool kWide = std::is_same_v<Op, SpmmWide>;
  const auto dtype = kWide ? compute_type(call.dense) : call.dense.scalar_type();
  return at::empty_symint(check(call).result(call.dense), call.dense.options().dtype(dtype));
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

EmbeddingBag::Result bags_meta(const EmbeddingBag& call) {
  const at::SymDimVector sizes{call.bags(), call.weight.sym_size(1)};
  const auto numbers = call.index.options();
  const Tensor winner = call.mode == 2 ? at::empty_symint(sizes, numbers) : at::empty({0}, numbers);
  return {at::empty_symint(sizes, call.weight.options()),
          at::empty_symint(call.index.sym_sizes(), numbers),
          at::empty_symint(call.offsets.sym_sizes(), numbers), winner};
}

TORCH_LIBRARY_IMPL(gpuopt, Meta, m) {
  impl<EmbeddingBag, bags_meta>(m);
  impl<Spmm, spmm_meta<Spmm>>(m);
  impl<SpmmWide, spmm_meta<SpmmWide>>(m);
  impl<SpmmArg, arg_meta>(m);
  impl<SpmmSelected, spmm_meta<SpmmSelected>>(m);
  impl<Sddmm, sddmm_meta>(m);
}

}  // namespace
}  // namespace gpuopt::spmm
