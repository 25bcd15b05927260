// Sorts the index in ascending order, with equal bins in the order of their positions. It is a
// stable radix sort, least significant digit first (Knuth, The Art of Computer Programming 3,
// section 5.2.5), of bins and positions packed into 64 bits.
#pragma once

#include <cuda_runtime_api.h>

#include "common/workspace.h"
#include "index_add/device/index_add_values.cuh"
#include "index_add/paths/index_add_sorted.h"

namespace gpuopt::index_add {

// entries[i] >> position_bits is a bin. The bits below are its position in the index.
struct SortedIndex {
  const uint64_t* entries = nullptr;
  int position_bits = 0;
};

// Sorts the first `count` entries, at least one, and zeroes `zeroed`. The next kernel of the stream
// may start before the last pass ends (programmatic dependent launch).
cudaError_t sort_index(const SortPlan& plan, const Index& index, uint32_t count, uint32_t* zeroed,
                       uint32_t num_zeroed, Workspace& workspace, cudaStream_t stream,
                       SortedIndex* sorted);

}  // namespace gpuopt::index_add
