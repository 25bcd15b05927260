// The schema, CPU kernels and Meta kernel of transposes.
#include <ATen/ATen.h>

#include <utility>

#include "spmm/binding/spmm_reference.h"
#include "spmm/binding/spmm_transpose.h"

namespace gpuopt::spmm {
namespace {

TORCH_LIBRARY_FRAGMENT(gpuopt, m) { define<Transpose>(m); }

// Puts the fingerprint of the sources in place of the last one. Returns whether that was another
// one.
bool is_changed(const Tensor& memory, at::TensorList sources) {
  uint64_t sum = 0;
  int64_t position = 0;
  for (const Tensor& source : sources) {
    const Tensor all = source.to(at::kLong).contiguous();
    const int64_t* const numbers = all.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < all.numel(); ++i) sum += mixed(numbers[i], position++);
  }
  auto& last = *static_cast<Fingerprint*>(memory.mutable_data_ptr());
  const bool is_known = std::exchange(last.is_known, 1u) != 0;
  return std::exchange(last.value, sum) != sum && is_known;
}

void refuse_writes(const Tensor& fingerprint, at::TensorList sources) {
  TORCH_CHECK(!is_changed(fingerprint, sources),
              "an index was written to in a way that PyTorch does not count: expected the numbers "
              "of the first call, got others; pass a copy of it");
}

void update(const KeptTranspose& transpose) {
  const auto& [ptr, index, fingerprint, rows, changes] = transpose;
  if (!is_changed(fingerprint, {ptr, index})) return;
  ++*changes;
  copy(transpose_by_aten({ptr, index, rows.ptr.numel() - 1}), rows);
}

constexpr StructureKernels kKernels{[] { return false; }, refuse_writes, update};
[[maybe_unused]] const bool is_set = (structure_kernels[0] = &kKernels, true);

TORCH_LIBRARY_IMPL(gpuopt, CPU, m) { impl<Transpose, transpose_by_aten>(m); }

Transpose::Result transpose_meta(const Transpose& call) {
  check(call);
  const SymInt entries = call.index.sym_size(0);
  const auto vector = [&](const SymInt& size) {
    return at::empty_symint({size}, call.ptr.options());
  };
  return {vector(call.columns + 1), vector(entries), vector(entries)};
}

TORCH_LIBRARY_IMPL(gpuopt, Meta, m) { impl<Transpose, transpose_meta>(m); }

}  // namespace
}  // namespace gpuopt::spmm
