// Copies rows of inputs to shared memory, decomposed into phases.
#pragma once

#include "common/async.cuh"
#include "conv1d/phases.h"

namespace gpuopt::conv1d {

// Starts copying `rows` rows from position `first` on. wait_for_copies() waits for them. Values
// outside of [0, size) are 0. row_of(row) is the address of a row's position 0.
template <typename T, typename RowOf>
__device__ __forceinline__ void copy_phases(T* shared, const PhasedRows& phases, uint32_t rows,
                                            int32_t first, int32_t size, int64_t stride,
                                            const RowOf& row_of) {
#pragma unroll 4
  for (uint32_t i = threadIdx.x; i < rows * phases.row_values.divisor; i += blockDim.x) {
    uint32_t row = i;
    const uint32_t index = phases.row_values.divmod(row);
    const int32_t position = first + static_cast<int32_t>(index);
    copy_async_if(shared + row * phases.row_pitch + phases.index_of(index),
                  row_of(row) + position * stride,
                  static_cast<uint32_t>(position) < static_cast<uint32_t>(size));
  }
}

}  // namespace gpuopt::conv1d
