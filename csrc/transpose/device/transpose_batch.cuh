// The matrices of a batch.
#pragma once

#include "transpose/transpose_args.h"

namespace gpuopt::transpose {

// Where a matrix begins, in elements.
__device__ __forceinline__ int64_t offset_of(uint32_t matrix, const Batch& batch) {
  int64_t sum = 0;
#pragma unroll 1
  for (int d = 0; d < batch.dims; ++d) sum += batch.sizes[d].divmod(matrix) * batch.strides[d];
  return sum;
}

}  // namespace gpuopt::transpose
