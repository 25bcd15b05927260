// The long segments of a sorted index: runs of more than kShortSegment equal bins. They are
// recorded in parts, each for a warp or a block.
#pragma once

#include <cuda_runtime_api.h>

#include "index_add/paths/index_add_sorted.h"

namespace gpuopt::index_add {

// Some rows of a long segment.
struct Part {
  uint32_t begin, end;  // in the sorted index
  uint32_t number;      // among the `count` parts of the segment
  uint32_t count;
  uint32_t slot;  // of the sum of part 0, if there are several parts
};

// Must be zero before find_long_segments().
struct Counters {
  uint32_t warp_parts;
  uint32_t block_parts;
  uint32_t slots;
};

struct SegmentArgs {
  const uint64_t* entries = nullptr;
  uint32_t count = 0;
  int position_bits = 0;
  uint32_t warp_rows = 0;  // most rows of a segment that one warp sums
  uint32_t part_rows = 0;  // rows of a part that a block sums
  Counters* counters = nullptr;
  Part* parts = nullptr;  // for warps from the front on, for blocks from the back
  uint32_t capacity = 0;  // of `parts`

  __device__ uint64_t bin(uint64_t entry) const { return entry >> position_bits; }
  __device__ uint64_t position(uint64_t entry) const {
    return entry & ((uint64_t{1} << position_bits) - 1);
  }
  __device__ Part& block_part(uint32_t number) const { return parts[capacity - 1 - number]; }
};

// Records the long segments of `args.entries` in `args.parts`. The next kernel of the stream may
// start before this one ends (programmatic dependent launch).
cudaError_t find_long_segments(const SegmentArgs& args, cudaStream_t stream);

}  // namespace gpuopt::index_add
