// Sorts the index in ascending order, with equal bins in the order of their positions. It is a
// stable radix sort, least significant digit first (Knuth, The Art of Computer Programming 3,
// section 5.2.5), of bins and positions packed into 64 bits.
#pragma once

#include <cuda_runtime_api.h>

#include "common/workspace.h"
#include "index_add/paths/index_add_sorted.h"

namespace gpuopt::index_add {

// Sorts the index of a plan, and zeroes plan.num_zeroed words. (*sorted)[i] >> position_bits is a
// bin. The bits below are its position in the index. The next kernel of the stream may start before
// the last pass ends (programmatic dependent launch).
cudaError_t sort_index(const SortPlan& plan, uint32_t* zeroed, Workspace& workspace,
                       cudaStream_t stream, const uint64_t** sorted);

}  // namespace gpuopt::index_add
