// Sparse products in ATen's operators.
#pragma once

#include "spmm/binding/spmm_check.h"

namespace gpuopt::spmm {

// The row of each entry (E), of the dtype of ptr. `entries` may be symbolic.
inline Tensor rows_of(const Tensor& ptr, const SymInt& entries) {
  const Tensor numbers = at::arange(at::Scalar(entries), ptr.options());
  const bool is_int = ptr.scalar_type() == at::kInt;
  return at::searchsorted(ptr, numbers, is_int, /*right=*/true).sub(1);
}

// The transpose of a matrix. Nothing waits for the GPU, and ties are kept in order, so results are
// repeatable.
inline Transpose::Result transpose_by_aten(const Transpose& call) {
  check(call);
  const auto& [ptr, index, columns] = call;
  const auto [sorted, order] = at::sort(index, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  const Tensor starts = at::arange(at::Scalar(columns + 1), ptr.options());
  const bool is_int = ptr.scalar_type() == at::kInt;
  const Tensor t_ptr = at::searchsorted(sorted, starts, is_int);
  const Tensor t_index = rows_of(ptr, index.sym_size(0)).index_select(0, order);
  return {t_ptr, t_index, order.to(ptr.scalar_type())};
}

}  // namespace gpuopt::spmm
