// What reductions of rows need in ATen's operators.
#pragma once

#include <ATen/ATen.h>

#include <vector>

namespace gpuopt::rows {

using at::Tensor;

// The dtype that sums are computed in.
inline at::ScalarType compute_type(const Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
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

}  // namespace gpuopt::rows
