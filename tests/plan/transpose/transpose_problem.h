// Makes a problem from plain numbers, for the C entry points that tests call.
#pragma once

#include "transpose/transpose_plan.h"

namespace gpuopt::transpose {

struct Given {
  uint64_t in, out;
  int64_t item, rows, columns, row_stride, column_stride, batch_dims;
  int64_t batch_sizes[kMaxBatchDims], batch_strides[kMaxBatchDims];
};

inline Problem make_problem(const Given& given) {
  Problem problem;
  problem.in = reinterpret_cast<const void*>(given.in);
  problem.out = reinterpret_cast<void*>(given.out);
  problem.item = given.item;
  problem.rows = given.rows;
  problem.columns = given.columns;
  problem.row_stride = given.row_stride;
  problem.column_stride = given.column_stride;
  problem.batch_dims = static_cast<int>(given.batch_dims);
  for (int d = 0; d < problem.batch_dims; ++d) {
    problem.batch_sizes[d] = given.batch_sizes[d];
    problem.batch_strides[d] = given.batch_strides[d];
  }
  return problem;
}

}  // namespace gpuopt::transpose
