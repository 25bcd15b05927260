// The kernel of index_select.
#pragma once

#include "common/any_vec.cuh"
#include "common/index_reader.cuh"
#include "common/launch.cuh"
#include "common/row_origin.cuh"
#include "index_select/index_select.h"

namespace gpuopt::index_select {

// The index from an entry on.
__device__ __forceinline__ Index index_from(Index index, uint64_t entry) {
  const int64_t skipped = static_cast<int64_t>(entry) * index.stride;
  index.values = index.is_long
                     ? static_cast<const void*>(static_cast<const int64_t*>(index.values) + skipped)
                     : static_cast<const int32_t*>(index.values) + skipped;
  return index;
}

// The offset of the table of an entry, in accesses.
__device__ __forceinline__ int64_t table_of(const GatherArgs& args, uint64_t entry) {
  if (args.table_accesses == 0) return 0;
  return args.table_entries.div(static_cast<uint32_t>(entry)) * args.table_accesses;
}

// Copies values of type U. A block copies neighbouring values of `out`, so it divides a 64-bit
// number only once. Each thread has all its loads in flight before it stores.
template <typename U, int kUnroll>
__global__ __launch_bounds__(kGatherThreads) void gather(const __grid_constant__ GatherArgs args) {
  constexpr uint32_t kBlockAccesses = kGatherThreads * kUnroll;
  const uint64_t first = uint64_t{blockIdx.x} * kBlockAccesses;
  const auto end =
      static_cast<uint32_t>(min(args.total_accesses - first, uint64_t{kBlockAccesses}));
  const RowOrigin origin(args.row_accesses, first);
  uint32_t entries[kUnroll], accesses[kUnroll];
  int count = 0;
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const uint32_t number = threadIdx.x + u * kGatherThreads;
    if (number < end) count = u + 1;
    entries[u] = origin.position + number;
    accesses[u] = args.row_accesses.divmod(entries[u]);
  }
  const Index index = index_from(args.index, origin.row);
  grid_dependency_wait();
  int64_t bins[kUnroll];
  index.load(entries, count, bins);
  index.check(count, bins);
  U values[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    if (u < count) {
      const int64_t row =
          table_of(args, origin.row + entries[u]) + bins[u] * args.bin_accesses + accesses[u];
      values[u] = static_cast<const U*>(args.self)[row];
    }
  }
  launch_dependents();
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    if (u < count) static_cast<U*>(args.out)[first + threadIdx.x + u * kGatherThreads] = values[u];
  }
}

// Copies rows of at least 16 bytes that lie anywhere. A thread stores aligned vectors of `out`. The
// bytes of a vector are from one row, or from the end of a row and the beginning of the next one:
//
//   out        | a a a a a a a a | a a a b b b b b |      accesses are bytes here
//   row a  . . . | a a a a a a a a | a a a . . .          two aligned vectors hold the first
//   row b    . . . . . . . . | . . b b b b b | b b b b    one vector of each row holds the second
__global__ __launch_bounds__(kGatherThreads) void gather_anywhere(
    const __grid_constant__ GatherArgs args) {
  constexpr uint32_t kBlockBytes = kGatherThreads * kAnywhereUnroll * kAccessBytes;
  const uint64_t first = uint64_t{blockIdx.x} * kBlockBytes;
  const auto end = static_cast<uint32_t>(min(args.total_accesses - first, uint64_t{kBlockBytes}));
  const RowOrigin origin(args.row_accesses, first);
  const Index index = index_from(args.index, origin.row);
  const int64_t entries_left = static_cast<int64_t>(args.entries - origin.row);
  // Vector u has the rows of entries[2 u] and, from byte from_a[u] on, of the next one.
  uint32_t entries[2 * kAnywhereUnroll], begin[kAnywhereUnroll];
  int from_a[kAnywhereUnroll];
  int count = 0;
#pragma unroll
  for (int u = 0; u < kAnywhereUnroll; ++u) {
    const uint32_t number = (threadIdx.x + u * kGatherThreads) * kAccessBytes;
    if (number < end) count = u + 1;
    entries[2 * u] = origin.position + number;
    begin[u] = args.row_accesses.divmod(entries[2 * u]);
    from_a[u] = static_cast<int>(min(args.row_accesses.divisor - begin[u], uint32_t{kAccessBytes}));
    entries[2 * u + 1] = entries[2 * u];
    if (from_a[u] < kAccessBytes && entries[2 * u] + 1 < entries_left) ++entries[2 * u + 1];
  }
  grid_dependency_wait();
  int64_t bins[2 * kAnywhereUnroll];
  index.load(entries, 2 * count, bins);
  index.check(2 * count, bins);
  const auto* self = static_cast<const char*>(args.self);
  const char* self_end = self + table_of(args, args.entries - 1) +
                         (args.index.bins - 1) * args.bin_accesses + args.row_accesses.divisor;
  AnyVec a[kAnywhereUnroll], b[kAnywhereUnroll];
#pragma unroll
  for (int u = 0; u < kAnywhereUnroll; ++u) {
    if (u >= count) from_a[u] = 0, bins[2 * u] = bins[2 * u + 1] = 0, begin[u] = 0;
    const char* table_a = self + table_of(args, origin.row + (u < count ? entries[2 * u] : 0));
    const char* table_b = self + table_of(args, origin.row + (u < count ? entries[2 * u + 1] : 0));
    a[u].load(table_a + bins[2 * u] * args.bin_accesses + begin[u], 0, from_a[u], self_end);
    const bool has_next_row = u < count && entries[2 * u + 1] != entries[2 * u];
    b[u].load(table_b + bins[2 * u + 1] * args.bin_accesses - from_a[u], from_a[u],
              has_next_row ? kAccessBytes : 0, self_end);
  }
  launch_dependents();
#pragma unroll
  for (int u = 0; u < kAnywhereUnroll; ++u) {
    if (u >= count) break;
    const uint4 words = join_bytes(a[u].get(self_end), b[u].get(self_end), from_a[u]);
    const uint32_t number = (threadIdx.x + u * kGatherThreads) * kAccessBytes;
    auto* to = static_cast<char*>(args.out) + first + number;
    if (end - number >= kAccessBytes) {
      *reinterpret_cast<uint4*>(to) = words;
    } else {
      const uint32_t bytes[] = {words.x, words.y, words.z, words.w};
#pragma unroll
      for (int i = 0; i < kAccessBytes; ++i) {
        if (i < end - number) to[i] = static_cast<char>(bytes[i / 4] >> (8 * (i % 4)));
      }
    }
  }
}

}  // namespace gpuopt::index_select
