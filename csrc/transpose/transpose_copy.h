// Copies that are transpositions. Plain host C++, tested without a GPU.
#pragma once

#include <cstdint>
#include <optional>

#include "common/dims.h"
#include "transpose/transpose_plan.h"

namespace gpuopt::transpose {

// A copy of `in` to a dense `out` as a transposition, or nothing if it is none.
inline std::optional<Problem> as_transposition(const Dims& dims) {
  if (dims.count < 2 || dims.count > kMaxBatchDims + 2) return std::nullopt;
  int64_t dense = 1;
  for (const Dim& dim : dims) {
    if (dim.a != dense || dim.b <= 0) return std::nullopt;
    dense *= dim.size;
  }
  const Dim &rows = dims.dims[0], &columns = dims.dims[1];
  if (columns.b != 1 || rows.b < columns.size) return std::nullopt;
  Problem problem;
  problem.rows = rows.size;
  problem.columns = columns.size;
  problem.row_stride = rows.b;
  problem.column_stride = columns.b;
  for (int d = 2; d < dims.count; ++d) {
    problem.batch_sizes[problem.batch_dims] = dims.dims[d].size;
    problem.batch_strides[problem.batch_dims++] = dims.dims[d].b;
  }
  return problem;
}

}  // namespace gpuopt::transpose
