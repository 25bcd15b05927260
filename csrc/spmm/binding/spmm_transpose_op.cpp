// The schemas, CPU kernels and Meta kernels of transposes.
#include <ATen/ATen.h>

#include "spmm/binding/spmm_reference.h"
#include "spmm/binding/spmm_transpose.h"

namespace gpuopt::spmm {
namespace {

TORCH_LIBRARY_FRAGMENT(gpuopt, m) { define<Transpose, TransposeKept, SameNumbers>(m); }

uint64_t fingerprint_of(const Tensor& numbers, int64_t position) {
  const Tensor all = numbers.to(at::kLong).contiguous();
  const int64_t* const from = all.const_data_ptr<int64_t>();
  uint64_t sum = 0;
  for (int64_t i = 0; i < all.numel(); ++i) sum += mixed(from[i], position + i);
  return sum;
}

// Whether the fingerprint of the last call is the same. There may have been none.
bool is_same(Fingerprint& state, uint64_t value) {
  const bool is_same = state.is_known != 0 && state.value == value;
  state.value = value;
  state.is_known = 1;
  return is_same;
}

Fingerprint& state_in(const Tensor& memory) {
  return *static_cast<Fingerprint*>(memory.mutable_data_ptr());
}

Tensor& kept_cpu(const TransposeKept& call) {
  check(call);
  const auto& [kept, ptr, index, columns, is_new, changes] = call;
  const uint64_t value = fingerprint_of(ptr, 0) + fingerprint_of(index, ptr.size(0));
  if (is_same(state_in(kept), value)) return kept;
  if (!is_new && changes != 0) ++*reinterpret_cast<int64_t*>(changes);
  const auto [t_ptr, t_index, t_entry] = transpose_by_aten({ptr, index, columns});
  const TransposedRows rows = parts_of(kept, index, columns);
  rows.ptr.copy_(t_ptr);
  rows.index.copy_(t_index);
  rows.entry.copy_(t_entry);
  return kept;
}

Tensor& same_cpu(const SameNumbers& call) {
  check(call);
  Fingerprint& state = state_in(call.state);
  const bool is_first = state.is_known == 0;
  TORCH_CHECK(is_same(state, fingerprint_of(call.numbers, 0)) || is_first,
              "an index was written to in a way that PyTorch does not count: expected the numbers "
              "of the first call, got others; pass a copy of it");
  return call.state;
}

TORCH_LIBRARY_IMPL(gpuopt, CPU, m) {
  impl<Transpose, transpose_by_aten>(m);
  impl<TransposeKept, kept_cpu>(m);
  impl<SameNumbers, same_cpu>(m);
}

Transpose::Result transpose_meta(const Transpose& call) {
  check(call);
  const SymInt entries = call.index.sym_size(0);
  const auto vector = [&](const SymInt& size) {
    return at::empty_symint({size}, call.ptr.options());
  };
  return {vector(call.columns + 1), vector(entries), vector(entries)};
}

Tensor& kept_meta(const TransposeKept& call) {
  check(call);
  return call.kept;
}

Tensor& same_meta(const SameNumbers& call) {
  check(call);
  return call.state;
}

TORCH_LIBRARY_IMPL(gpuopt, Meta, m) {
  impl<Transpose, transpose_meta>(m);
  impl<TransposeKept, kept_meta>(m);
  impl<SameNumbers, same_meta>(m);
}

}  // namespace
}  // namespace gpuopt::spmm
