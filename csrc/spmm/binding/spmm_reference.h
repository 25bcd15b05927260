// Sparse products in ATen's operators.
#pragma once

#include <vector>

#include "spmm/binding/spmm_check.h"

namespace gpuopt::spmm {

// The row of each entry (E), of the dtype of ptr. `entries` may be symbolic.
inline Tensor rows_of(const Tensor& ptr, const SymInt& entries) {
  const Tensor numbers = at::arange(at::Scalar(entries), ptr.options());
  const bool is_int = ptr.scalar_type() == at::kInt;
  return at::searchsorted(ptr, numbers, is_int, /*right=*/true).sub(1);
}

// Rows divided by the number of their entries, which is counted in integers.
inline Tensor divided_by_counts(const Tensor& rows, const Tensor& ptr, int64_t row_dim) {
  const auto dtype = compute_type(rows);
  std::vector<int64_t> shape(static_cast<size_t>(rows.dim() - row_dim), 1);
  shape[0] = -1;
  const Tensor counts = ptr.slice(0, 1) - ptr.slice(0, 0, -1);
  const Tensor divisors = counts.clamp_min(1).to(dtype).view(shape);
  return rows.to(dtype).div(divisors).to(rows.scalar_type());
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
