// Reads a sorted index.
#pragma once

#include <cstdint>

#include "common/index_reader.h"

namespace gpuopt::index_sort {

// The number of sorted entries of bins below `bin`. A bin's entries begin there.
GPUOPT_DEVICE uint32_t lower_bound(const uint64_t* sorted, uint32_t count, uint64_t bin,
                                   int position_bits) {
  uint32_t first = 0;
  while (count > 0) {
    const uint32_t half = count / 2;
    const bool is_below = sorted[first + half] >> position_bits < bin;
    first += is_below ? half + 1 : 0;
    count = is_below ? count - half - 1 : half;
  }
  return first;
}

}  // namespace gpuopt::index_sort
