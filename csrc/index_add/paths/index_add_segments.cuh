// The long segments of a sorted index: runs of more than kShortSegment equal bins. They are
// recorded in parts, each for a warp or a block.
#pragma once

#include <cuda_runtime_api.h>

#include "index_add/paths/index_add_sorted.h"

namespace gpuopt::index_add {

// Records the long segments of `args.entries` in `args.parts`. The next kernel of the stream may
// start before this one ends (programmatic dependent launch).
cudaError_t find_long_segments(const LaunchShape& shape, const SegmentArgs& args,
                               cudaStream_t stream);

}  // namespace gpuopt::index_add
