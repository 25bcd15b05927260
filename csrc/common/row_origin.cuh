// Where a block begins in a tensor of rows that lie behind each other.
#pragma once

#include "common/index.h"

namespace gpuopt {

// The row and the position within it. Rows have less than 2^31 positions.
struct RowOrigin {
  uint64_t row;
  uint32_t position;

  __device__ __forceinline__ RowOrigin(const FastDiv& row_size, uint64_t first) {
    // A division of 64 bits takes about as long as a load from the L2 cache.
    if (first <= kMaxIndex32) {
      auto rest = static_cast<uint32_t>(first);
      position = row_size.divmod(rest);
      row = rest;
    } else {
      row = first / row_size.divisor;
      position = static_cast<uint32_t>(first - row * row_size.divisor);
    }
  }
};

}  // namespace gpuopt
