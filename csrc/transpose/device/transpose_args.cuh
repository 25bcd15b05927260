// The arguments of the transposition kernels.
#pragma once

#include "common/index.h"
#include "transpose/transpose_plan.h"

namespace gpuopt::transpose {

// Dimensions of the batch. offset() is where a matrix begins, in elements.
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
  const void* in_end;  // one past the last element
  void* out;
  int64_t rows, columns, row_stride;
  Batch batch;
  FastDiv row_tiles, column_tiles;    // tiles or strips of a matrix
  FastDiv strip_rows, strip_columns;  // kStrips: rows and columns of a strip
  uint32_t strip_matrices, matrices;  // matrices of a strip (kStrips), matrices of the batch
  uint32_t room_shift;     // kStrips: a padding vector follows every 2^room_shift elements
  bool in_flat, out_flat;  // kStrips: a strip is one run of the input, of the output
};

}  // namespace gpuopt::transpose
