// What the kernels of transposition are given.
#pragma once

#include "common/index.h"
#include "transpose/transpose_plan.h"

namespace gpuopt::transpose {

// Where a matrix of the batch begins.
struct Batch {
  int dims;
  FastDiv sizes[kMaxBatchDims];  // innermost first
  int64_t strides[kMaxBatchDims];

  __device__ __forceinline__ int64_t offset(uint32_t matrix) const {
    int64_t sum = 0;
#pragma unroll 1
    for (int d = 0; d < dims; ++d) sum += sizes[d].divmod(matrix) * strides[d];
    return sum;
  }
};

struct Args {
  const void* in;
  const void* in_end;  // behind the last element
  void* out;
  int64_t rows, columns, row_stride, column_stride;
  Batch batch;
  FastDiv row_tiles, column_tiles;  // of a matrix
  // kStrips: of a strip.
  FastDiv strip_rows, strip_columns;
  uint32_t strip_matrices, matrices;
  uint32_t room_shift;  // a vector of room after 2^room_shift elements
  bool in_flat, out_flat;
};

}  // namespace gpuopt::transpose
