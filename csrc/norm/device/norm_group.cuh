// Groups of threads that share a row, and sums over their threads.
#pragma once

#include "common/warp.cuh"
#include "norm/norm_args.h"

namespace gpuopt::norm {

constexpr int kMaxWarps = 32;  // of a block

// Some lanes of a warp, a power of two, or some warps of a block.
struct Group {
  uint32_t lanes;   // threads
  uint32_t number;  // of the group in its block
  uint32_t lane;

  __device__ __forceinline__ explicit Group(const Tiling& tiling)
      : lanes(tiling.lanes.divisor), number(tiling.lanes.div(threadIdx.x)) {
    lane = threadIdx.x - number * lanes;
  }
  // All threads of a block.
  __device__ __forceinline__ explicit Group(uint32_t threads)
      : lanes(threads), number(0), lane(threadIdx.x) {}
};

// Sums over the threads of each group. All threads get the same bits, and all of the block take
// part. `shared` has kMaxWarps * kCount values, which no thread may still read.
template <int kCount, typename C>
__device__ __forceinline__ void add_up(const Group& group, C (&sums)[kCount], C* shared) {
  for (uint32_t step = 1; step < min(group.lanes, 32u); step *= 2) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) sums[i] += shuffle_xor(sums[i], static_cast<int>(step));
  }
  if (group.lanes <= 32) return;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (lane == 0) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) shared[warp * kCount + i] = sums[i];
  }
  __syncthreads();
  const uint32_t warps = group.lanes / 32, first = group.number * warps;
  uint32_t width = 1;
  while (width < warps) width *= 2;
  const uint32_t index = lane & (width - 1);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    sums[i] = index < warps ? shared[(first + index) * kCount + i] : C{0};
  }
  for (uint32_t step = 1; step < width; step *= 2) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) sums[i] += shuffle_xor(sums[i], static_cast<int>(step));
  }
}

}  // namespace gpuopt::norm
