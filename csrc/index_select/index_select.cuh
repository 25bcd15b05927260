// The kernel of gather_rows().
#pragma once

#include "common/index_reader.cuh"
#include "common/launch.cuh"
#include "index_select/index_select.h"

namespace gpuopt::index_select {

constexpr int kGatherThreads = 256;
constexpr int kGatherUnroll = 4;  // units of a thread

struct GatherArgs {
  const void* self = nullptr;
  void* out = nullptr;
  Index index;
  int64_t bin_units = 0;  // from one row of self to the next
  FastDiv units;          // of a row
  uint64_t total_units = 0;
};

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

template <typename U>
cudaError_t launch_gather(const Gather& gathered, cudaStream_t stream) {
  constexpr auto kUnit = static_cast<int64_t>(sizeof(U));
  GatherArgs args;
  args.self = gathered.self;
  args.out = gathered.out;
  args.index.values = gathered.index;
  args.index.is_long = gathered.long_index;
  args.index.stride = gathered.index_stride;
  args.index.bins = gathered.bins;
  args.bin_units = gathered.bin_bytes / kUnit;
  args.units = divide_by(gathered.row_bytes / kUnit);
  args.total_units = static_cast<uint64_t>(gathered.row_bytes / kUnit * gathered.entries);
  LaunchShape shape;
  shape.threads = kGatherThreads;
  shape.blocks =
      static_cast<unsigned>(ceil_div<uint64_t>(args.total_units, kGatherThreads * kGatherUnroll));
  return launch_kernel(gather<U>, shape, stream, args);
}

}  // namespace gpuopt::index_select
