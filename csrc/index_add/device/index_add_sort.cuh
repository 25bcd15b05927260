// Sorts the index in ascending order, with equal bins in the order of their positions. It is a
// stable radix sort, least significant digit first (Knuth, The Art of Computer Programming 3,
// section 5.2.5), of bins and positions packed into 64 bits.
#pragma once

#include <cuda_runtime_api.h>

#include "common/workspace.h"
#include "index_add/paths/index_add_sorted.h"

namespace gpuopt::index_add {

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

// Sorts the index of a plan, and zeroes plan.num_zeroed words. (*sorted)[i] >> position_bits is a
// bin. The bits below are its position in the index. The next kernel of the stream may start before
// the last pass ends (programmatic dependent launch).
cudaError_t sort_index(const SortPlan& plan, uint32_t* zeroed, Workspace& workspace,
                       cudaStream_t stream, const uint64_t** sorted);

}  // namespace gpuopt::index_add
