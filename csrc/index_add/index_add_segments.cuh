// The long segments of a sorted index: runs of more equal bins than one group of lanes sums in its
// turn. They are noted in parts, each for a warp or a block.
#pragma once

#include <cuda_runtime_api.h>

#include "index_add/index_add_sorted.h"

namespace gpuopt::index_add {

// Some rows of a long segment.
struct Part {
  uint32_t begin, end;  // in the sorted index
  uint32_t number;      // of `count` of the same segment
  uint32_t count;
  uint32_t slot;  // of part 0's sum, where there are several parts
};

// Zero before segments are looked for.
struct Counters {
  uint32_t warp_parts;
  uint32_t block_parts;
  uint32_t slots;
};

struct SegmentArgs {
  const uint64_t* entries = nullptr;
  uint32_t count = 0;
  int position_bits = 0;
  uint32_t warp_rows = 0;  // that a warp sums at most, all of a segment
  uint32_t part_rows = 0;  // of a block
  Counters* counters = nullptr;
  Part* parts = nullptr;  // those of warps from the beginning on, those of blocks from the end
  uint32_t capacity = 0;  // of `parts`

  __device__ uint64_t bin(uint64_t entry) const { return entry >> position_bits; }
  __device__ uint64_t position(uint64_t entry) const {
    return entry & ((uint64_t{1} << position_bits) - 1);
  }
  __device__ Part& block_part(uint32_t number) const { return parts[capacity - 1 - number]; }
};

// Notes the long segments of `args.entries` in `args.parts`. What is launched next may be set up
// while this runs.
cudaError_t find_long_segments(const SegmentArgs& args, cudaStream_t stream);

}  // namespace gpuopt::index_add
