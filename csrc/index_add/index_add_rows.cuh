// Rows summed in the order of the sorted index. A segment is a run of equal bins there: all rows that
// one row of self gets. Groups of lanes sum short segments whole; long ones are noted and left to
// blocks, several where they are very long, whose sums meet in memory. So whatever the indices are,
// each row of self is read and written once, sums come in one order, and no group has much more to do
// than another.
#pragma once

#include "common/launch.cuh"
#include "index_add/index_add_values.cuh"

namespace gpuopt::index_add {

// Some rows of a long segment, for one block.
struct Part {
  uint32_t begin, end;  // in the sorted index
  uint32_t number;      // of `count` of the same segment
  uint32_t count;
  uint32_t slot;  // of part 0's sum, where there are several parts
};

// Zero before short segments are summed.
struct Counters {
  uint32_t parts;
  uint32_t slots;
};

struct RowArgs {
  void* self = nullptr;
  const void* source = nullptr;  // row 0 is the index's entry at sorted position bits 0
  const uint64_t* entries = nullptr;
  uint32_t count = 0;
  int position_bits = 0;
  int64_t bin_stride = 0;
  int64_t entry_stride = 0;
  int64_t self_inner_stride = 0;
  int64_t source_inner_stride = 0;
  uint32_t units = 0;  // of a row
  uint32_t lanes = 0;  // of a group
  uint32_t group_entries = 0;
  FastDiv tiles;   // of a row
  FastDiv ranges;  // of entries, one for each block
  OuterDims outer;
  uint32_t outer_size = 0;
  ScalarValue alpha;

  uint32_t part_rows = 0;
  Counters* counters = nullptr;
  uint32_t* tickets = nullptr;  // [slot][outer][tile]: parts of a segment that are summed
  Part* parts = nullptr;
  void* part_sums = nullptr;  // [slot][outer][tile][lane]

  __device__ uint64_t bin(uint64_t entry) const { return entry >> position_bits; }
  __device__ uint64_t position(uint64_t entry) const {
    return entry & ((uint64_t{1} << position_bits) - 1);
  }
};

// A lane's column of the rows of one tile and outer index.
template <typename T, int V>
struct Column {
  T* self;
  const T* source;
  bool valid;  // the last tile may have fewer columns than lanes

  __device__ Column(const RowArgs& args, uint32_t tile, uint32_t outer, uint32_t lane) {
    const uint32_t unit = tile * args.lanes + lane;
    const Offsets offsets = outer_offsets(args.outer, outer);
    valid = unit < args.units;
    const int64_t at = int64_t{unit} * V;
    self = static_cast<T*>(args.self) + offsets.self + at * args.self_inner_stride;
    source = static_cast<const T*>(args.source) + offsets.source + at * args.source_inner_stride;
  }

  __device__ T* self_row(const RowArgs& args, uint64_t bin) const {
    return self + static_cast<int64_t>(bin) * args.bin_stride;
  }
  __device__ Pack<T, V> source_row(const RowArgs& args, uint64_t entry) const {
    return load_pack<T, V>(source + static_cast<int64_t>(args.position(entry)) * args.entry_stride);
  }
};

// The parts of the segment of `bin` that begins at `begin`, put down by one thread.
__device__ __forceinline__ void note_long_segment(const RowArgs& args, uint32_t begin,
                                                  uint64_t bin) {
  uint32_t low = begin + kShortSegment, high = args.count;  // an entry of it, and none from here on
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    (args.bin(args.entries[middle]) == bin ? low : high) = middle;
  }
  const uint32_t count = (high - begin - 1) / args.part_rows + 1;
  const uint32_t first = atomicAdd(&args.counters->parts, count);
  const uint32_t slot = count > 1 ? atomicAdd(&args.counters->slots, count) : 0;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t from = begin + i * args.part_rows;
    args.parts[first + i] = {from, min(high, from + args.part_rows), i, count, slot};
  }
}

// blockIdx: (outer, range of entries, tile of the rows), the tile innermost. Shared memory holds the
// entries of the block's range, the one before and as many more as a short segment may have.
template <typename T, int V>
__global__ __launch_bounds__(kRowThreads) void sum_short_segments(const RowArgs args) {
  constexpr int kRows = kRowsUnderWay<V>;
  extern __shared__ uint64_t staged[];
  uint32_t block = blockIdx.x;
  const uint32_t tile = args.tiles.divmod(block);
  const uint32_t range = args.ranges.divmod(block);
  const uint32_t outer = block;
  const uint32_t group = threadIdx.x / args.lanes, lane = threadIdx.x % args.lanes;
  const uint32_t block_entries = kRowThreads / args.lanes * args.group_entries;
  const uint32_t first = range * block_entries;
  const uint32_t known = min(args.count - first, block_entries + kShortSegment);
  const Column<T, V> column(args, tile, outer, lane);
  wait_for_grid_before();
  let_next_grid_start();
  for (uint32_t i = threadIdx.x; i <= known; i += kRowThreads) {
    if (first + i > 0) staged[i] = args.entries[first + i - 1];
  }
  __syncthreads();
  const auto bin_at = [&](uint32_t i) { return args.bin(staged[i + 1]); };

  uint32_t begin = group * args.group_entries;
  if (begin >= min(known, block_entries)) return;
  uint32_t end = min(known, begin + args.group_entries);
  const uint64_t last = bin_at(end - 1);
  if (first + begin > 0) {  // what goes on from the group before is that one's
    const uint64_t before = args.bin(staged[begin]);
    if (before == last) return;
    while (bin_at(begin) == before) ++begin;
  }
  if (end < known && bin_at(end) == last) {  // the last segment goes on
    uint32_t start = end - 1;
    while (start > begin && bin_at(start - 1) == last) --start;
    if (start + kShortSegment < known && bin_at(start + kShortSegment) == last) {
      if (tile == 0 && outer == 0 && lane == 0) note_long_segment(args, first + start, last);
      end = start;
    } else {
      while (end < known && bin_at(end) == last) ++end;
    }
  }
  if (!column.valid) return;

  const auto alpha = from_scalar<Sum<T>>(args.alpha);
  Sums<T, V> sums;
  Pack<T, V> self;
  T* self_row = nullptr;
  uint64_t current = 0;
  for (uint32_t i = begin; i < end; i += kRows) {
    Pack<T, V> rows[kRows];
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      if (i + u < end) rows[u] = column.source_row(args, staged[i + u + 1]);
    }
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      if (i + u >= end) break;
      const uint64_t bin = bin_at(i + u);
      if (self_row == nullptr || bin != current) {
        if (self_row != nullptr) store_pack(self_row, sums.added_to(self));
        self_row = column.self_row(args, bin);
        self = load_pack<T, V>(self_row);
        sums = Sums<T, V>();
        current = bin;
      }
      sums.add(rows[u], alpha);
    }
  }
  if (self_row != nullptr) store_pack(self_row, sums.added_to(self));
}

// The sum of the groups' sums, in group 0. `shared` has room for those of all threads.
template <typename T, int V>
__device__ __forceinline__ void sum_groups(Sums<T, V>& sums, Sums<T, V>* shared, uint32_t lanes) {
  shared[threadIdx.x] = sums;
  __syncthreads();
  for (uint32_t half = kRowThreads / 2; half >= lanes; half /= 2) {
    if (threadIdx.x < half) {
      sums.add(shared[threadIdx.x + half]);
      shared[threadIdx.x] = sums;
    }
    __syncthreads();
  }
}

// Each block sums parts of long segments, for one tile and outer index at a time.
template <typename T, int V>
__global__ __launch_bounds__(kRowThreads, 2) void sum_long_segments(const RowArgs args) {
  constexpr int kRows = kRowsUnderWay<V>;
  extern __shared__ uint64_t staged[];
  auto* shared = reinterpret_cast<Sums<T, V>*>(staged);
  __shared__ uint32_t summed_before;
  const uint32_t groups = kRowThreads / args.lanes;
  const uint32_t group = threadIdx.x / args.lanes, lane = threadIdx.x % args.lanes;
  const auto alpha = from_scalar<Sum<T>>(args.alpha);
  wait_for_grid_before();
  const uint64_t slices = uint64_t{args.tiles.divisor} * args.outer_size;
  const uint64_t items = args.counters->parts * slices;
  for (uint64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const Part part = args.parts[item / slices];
    auto outer = static_cast<uint32_t>(item % slices);
    const uint32_t slice = outer;
    const uint32_t tile = args.tiles.divmod(outer);
    const Column<T, V> column(args, tile, outer, lane);
    const uint64_t rows = part.end - part.begin;
    const auto begin = part.begin + static_cast<uint32_t>(rows * group / groups);
    const auto end = part.begin + static_cast<uint32_t>(rows * (group + 1) / groups);
    Sums<T, V> sums;
    for (uint32_t i = begin; column.valid && i < end; i += kRows) {
      uint64_t entries[kRows];
      Pack<T, V> packs[kRows];
#pragma unroll
      for (int u = 0; u < kRows; ++u) {
        if (i + u < end) entries[u] = args.entries[i + u];
      }
#pragma unroll
      for (int u = 0; u < kRows; ++u) {
        if (i + u < end) packs[u] = column.source_row(args, entries[u]);
      }
#pragma unroll
      for (int u = 0; u < kRows; ++u) {
        if (i + u < end) sums.add(packs[u], alpha);
      }
    }
    sum_groups(sums, shared, args.lanes);
    if (part.count > 1) {
      auto* part_sums = static_cast<Sums<T, V>*>(args.part_sums) +
                        (part.slot * slices + slice) * args.lanes + lane;
      const uint64_t next = slices * args.lanes;  // from a part to the next
      if (group == 0) part_sums[part.number * next] = sums;
      __threadfence();
      __syncthreads();
      if (threadIdx.x == 0) {
        summed_before = atomicAdd(&args.tickets[part.slot * slices + slice], 1u);
      }
      __syncthreads();
      if (summed_before + 1 < part.count) continue;  // another block will be the last
      __threadfence();
      sums = Sums<T, V>();
      const auto first = static_cast<uint32_t>(uint64_t{part.count} * group / groups);
      const auto last = static_cast<uint32_t>(uint64_t{part.count} * (group + 1) / groups);
#pragma unroll 8
      for (uint32_t i = first; i < last; ++i) sums.add(load_from_l2(&part_sums[i * next]));
      sum_groups(sums, shared, args.lanes);
    }
    if (group == 0 && column.valid) {
      T* row = column.self_row(args, args.bin(args.entries[part.begin]));
      store_pack(row, sums.added_to(load_pack<T, V>(row)));
    }
  }
}

}  // namespace gpuopt::index_add
