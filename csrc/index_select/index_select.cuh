// The kernel of index_select.
#pragma once

#include "common/index_reader.cuh"
#include "common/launch.cuh"
#include "index_select/index_select.h"

namespace gpuopt::index_select {

// Copies units of type U. A block copies neighbouring units of `out`, so it divides a 64-bit number
// only once. Each thread has all its loads in flight before it stores.
template <typename U>
__global__ __launch_bounds__(kGatherThreads) void gather(const GatherArgs args) {
  constexpr uint32_t kBlockUnits = kGatherThreads * kGatherUnroll;
  const uint64_t first = uint64_t{blockIdx.x} * kBlockUnits;
  const auto end = static_cast<uint32_t>(min(args.total_units - first, uint64_t{kBlockUnits}));
  const uint64_t first_entry = first / args.units.divisor;
  const auto first_unit = static_cast<uint32_t>(first - first_entry * args.units.divisor);
  uint32_t entries[kGatherUnroll], units[kGatherUnroll];
  int count = 0;
#pragma unroll
  for (int u = 0; u < kGatherUnroll; ++u) {
    const uint32_t number = threadIdx.x + u * kGatherThreads;
    if (number < end) count = u + 1;
    entries[u] = first_unit + number;
    units[u] = args.units.divmod(entries[u]);
  }
  Index index = args.index;
  const int64_t skipped = static_cast<int64_t>(first_entry) * index.stride;
  index.values = index.is_long
                     ? static_cast<const void*>(static_cast<const int64_t*>(index.values) + skipped)
                     : static_cast<const int32_t*>(index.values) + skipped;
  int64_t bins[kGatherUnroll];
  index.load(entries, count, bins);
  index.check(count, bins);
  U values[kGatherUnroll];
#pragma unroll
  for (int u = 0; u < kGatherUnroll; ++u) {
    if (u < count) {
      values[u] = static_cast<const U*>(args.self)[bins[u] * args.bin_units + units[u]];
    }
  }
#pragma unroll
  for (int u = 0; u < kGatherUnroll; ++u) {
    if (u < count) static_cast<U*>(args.out)[first + threadIdx.x + u * kGatherThreads] = values[u];
  }
}

}  // namespace gpuopt::index_select
