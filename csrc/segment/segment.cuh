// The kernel that takes a sorted index apart.
#pragma once

#include "common/index.h"
#include "common/launch.cuh"
#include "index_sort/index_sort.cuh"
#include "segment/segment.h"

namespace gpuopt::segment {

// Writes the positions of sorted entries to perm, and where each bin begins to ptr.
template <typename I>
__global__ __launch_bounds__(kThreads) void take_apart(const GroupArgs args,
                                                       const uint64_t* sorted) {
  grid_dependency_wait();
  launch_dependents();
  if (blockIdx.x < args.perm_blocks) {
    const uint64_t mask = (uint64_t{1} << args.position_bits) - 1;
    const uint32_t first = blockIdx.x * (kThreads * kGroupItems) + threadIdx.x;
#pragma unroll
    for (int i = 0; i < kGroupItems; ++i) {
      const uint32_t at = first + i * kThreads;
      if (at < args.entries) static_cast<I*>(args.perm)[at] = static_cast<I>(sorted[at] & mask);
    }
    return;
  }
  const int64_t block = blockIdx.x - args.perm_blocks;
  const int64_t first = block * (kThreads * kGroupItems) + threadIdx.x;
  for (int i = 0; i < kGroupItems; ++i) {
    const int64_t bin = first + i * kThreads;
    if (bin > args.bins) return;
    static_cast<I*>(args.ptr)[bin] = static_cast<I>(index_sort::lower_bound(
        sorted, args.entries, static_cast<uint64_t>(bin), args.position_bits));
  }
}

}  // namespace gpuopt::segment
