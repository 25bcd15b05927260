// Sums rows in the order of the sorted index. A segment is a run of equal bins in that order: all
// rows that are added to one row of self. A group of lanes sums a short segment. Long segments,
// which index_add_segments.cuh has found, are summed by the first blocks of the same launch. Very
// long ones are split into parts, whose sums are added up through memory. So each row of self is
// read and written once, sums have one order, and all groups have similar work, whatever the
// indices are.
//
//   index          7  2  7  5  2  7  7
//   sorted bins    2  2 | 5 | 7  7  7  7    three segments
//   positions      1  4 | 3 | 0  2  5  6    ascending in each segment: the order of additions
//   a group reads  self[2] src[1] src[4] | self[5] src[3] | self[7] src[0] src[2] ...
//   and writes     self[2]               | self[5]        | self[7]
#pragma once

#include "index_add/device/index_add_launch.cuh"
#include "index_add/paths/index_add_segments.cuh"
#include "index_sort/index_sort.cuh"

namespace gpuopt::index_add {

// The column of a lane, in the rows of one tile and outer index.
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
};

// ---------------------------------------------------------------- short segments

// 32 staged entries: a mask of the entries that begin a segment, and the number of items before the
// chunk.
struct Chunk {
  uint32_t starts;
  uint32_t items;
};

// An item is the offset of a row that a warp reads. Each segment has one item for its row of self,
// with this mark, and then one for each of its rows of source. So all rows are read alike, several
// at a time, whatever the lengths of segments. Reading self's row only where a segment begins takes
// longer (185 us against 172 us for the kernel, on an H200).
constexpr uint64_t kOfSelf = uint64_t{1} << 63;

// The shared memory of a warp. It has room for the items of its range of entries, and of 32 entries
// beyond, where segments of the range may end: two items per entry. The chunks follow.
struct Stage {
  uint32_t capacity;  // in items
  uint64_t* items;
  Chunk* chunks;

  __device__ Stage(void* shared, uint32_t warp, uint32_t range_entries) {
    const uint32_t num_chunks = range_entries / kShortSegment + 1;
    capacity = num_chunks * 2 * kShortSegment;
    items = static_cast<uint64_t*>(shared) + warp * (capacity + num_chunks + 1);
    chunks = reinterpret_cast<Chunk*>(items + capacity);
  }

  // The number of items before entry `at` of the range.
  __device__ uint32_t item(uint32_t at) const {
    const Chunk chunk = chunks[at / kShortSegment];
    const uint32_t within = at % kShortSegment;
    return chunk.items + within + __popc(chunk.starts & ((1u << within) - 1));
  }
};

// Stages the sorted entries from `first` on. The whole warp takes part.
__device__ __forceinline__ void stage_entries(const RowArgs& args, uint32_t first,
                                              const Stage& stage) {
  const SegmentArgs& segments = args.segments;
  const uint32_t lane = threadIdx.x % 32;
  uint32_t items = 0;
#pragma unroll 2
  for (uint32_t c = 0; c <= args.range_entries / kShortSegment; ++c) {
    const uint32_t i = first + c * kShortSegment + lane;
    const bool valid = i < segments.count;
    const uint64_t entry = valid ? segments.entries[i] : 0;
    const uint64_t before = valid && i > 0 ? segments.entries[i - 1] : 0;
    // Past the end, every entry counts as the start of a segment.
    const bool start = !valid || i == 0 || segments.bin(entry) != segments.bin(before);
    const uint32_t starts = __ballot_sync(0xffffffffu, start);
    const uint32_t at = items + lane + __popc(starts & ((1u << lane) - 1));
    if (valid) {
      if (start) {
        stage.items[at] = kOfSelf | segments.bin(entry) * static_cast<uint64_t>(args.bin_stride);
      }
      stage.items[at + start] = segments.position(entry) * static_cast<uint64_t>(args.entry_stride);
    }
    if (lane == 0) stage.chunks[c] = {starts, items};
    items += kShortSegment + __popc(starts);
  }
  __syncwarp();
}

// Finds the items of the short segments that begin among `valid` entries from `from` on.
__device__ __forceinline__ void find_items(const Stage& stage, uint32_t from, uint32_t valid,
                                           uint32_t* begin, uint32_t* end) {
  *begin = *end = 0;
  const uint32_t mask = valid < 32 ? (1u << valid) - 1 : ~0u;
  const uint32_t starts =
      stage.chunks[from / kShortSegment].starts >> (from % kShortSegment) & mask;
  if (starts == 0) return;
  const uint32_t first = from + __ffs(static_cast<int>(starts)) - 1;
  const uint32_t last = from + 31 - __clz(static_cast<int>(starts));
  const Chunk* next = &stage.chunks[(last + 1) / kShortSegment];
  const uint32_t later =
      __funnelshift_r(next[0].starts, next[1].starts, (last + 1) % kShortSegment);
  // If no segment starts in the 32 entries after it, the last segment is long and is left out.
  *begin = stage.item(first);
  *end = stage.item(later == 0 ? last : last + __ffs(static_cast<int>(later)));
}

template <typename T, int V>
__device__ __forceinline__ void sum_short_segments(const RowArgs& args, Sums<T, V>* shared) {
  constexpr int kRows = kRowsUnderWay<V>;
  uint32_t task = (blockIdx.x - args.workers) * kRowWarps + threadIdx.x / 32;
  if (task >= args.tasks) return;
  const uint32_t tile = args.tiles.divmod(task);
  const uint32_t range = args.ranges.divmod(task);
  const uint32_t group = threadIdx.x % 32 / args.lanes, lane = threadIdx.x % args.lanes;
  const uint32_t first = range * args.range_entries, from = group * args.group_entries;
  const Stage stage(shared + kRowThreads, threadIdx.x / 32, args.range_entries);
  stage_entries(args, first, stage);
  const Column<T, V> column(args, tile, task, lane);
  if (!column.valid || first + from >= args.segments.count) return;

  uint32_t begin, end;
  find_items(stage, from, min(args.group_entries, args.segments.count - first - from), &begin,
             &end);
  const auto alpha = from_scalar<Sum<T>>(args.alpha);
  const auto one = static_cast<Sum<T>>(1);
  Sums<T, V> sums;
  T* row = nullptr;
  for (uint32_t i = begin; i < end; i += kRows) {
    RawVec<T, V> vecs[kRows];
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      if (i + u >= end) break;
      const uint64_t item = stage.items[i + u];
      const T* from_row = item & kOfSelf ? column.self : column.source;
      vecs[u].load(from_row + (item & ~kOfSelf));
    }
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      if (i + u >= end) break;
      const uint64_t item = stage.items[i + u];
      if (item & kOfSelf) {
        if (row != nullptr) store_vec(row, sums.rounded());
        row = column.self + (item & ~kOfSelf);
        sums = Sums<T, V>();
      }
      sums.add(vecs[u].values(), item & kOfSelf ? one : alpha);
    }
  }
  if (row != nullptr) store_vec(row, sums.rounded());
}

// ---------------------------------------------------------------- long segments

template <int kTeam>
__device__ __forceinline__ void sync_team() {
  if constexpr (kTeam == 32) {
    __syncwarp();
  } else {
    __syncthreads();
  }
}

// Adds up the sums of all groups in group 0. `shared` has room for the sums of all threads of the
// team.
template <int kTeam, typename T, int V>
__device__ __forceinline__ void sum_groups(Sums<T, V>& sums, Sums<T, V>* shared, uint32_t lanes) {
  if (lanes == kTeam) return;
  const uint32_t thread = threadIdx.x % kTeam;
  shared[thread] = sums;
  sync_team<kTeam>();
#pragma unroll 1  // unrolled, it would need registers of the rows in flight
  for (uint32_t half = kTeam / 2; half >= lanes; half /= 2) {
    if (thread < half) {
      sums.add(shared[thread + half]);
      shared[thread] = sums;
    }
    sync_team<kTeam>();
  }
}

// Sums rows `begin` to `end`, which the groups of a warp take in turn.
template <typename T, int V>
__device__ __forceinline__ void sum_rows_of_warp(const RowArgs& args, const Column<T, V>& column,
                                                 const Stage& stage, uint32_t begin, uint32_t end,
                                                 Sums<T, V>& sums) {
  constexpr int kRows = kPartRowsUnderWay<V>;
  const uint32_t groups = 32 / args.lanes, group = threadIdx.x % 32 / args.lanes;
  const auto alpha = from_scalar<Sum<T>>(args.alpha);
  for (; begin < end; begin += stage.capacity) {
    const uint32_t rows = min(end - begin, stage.capacity);
#pragma unroll 4
    for (uint32_t i = threadIdx.x % 32; i < rows; i += 32) {
      stage.items[i] = args.segments.position(args.segments.entries[begin + i]) *
                       static_cast<uint64_t>(args.entry_stride);
    }
    __syncwarp();
    for (uint32_t i = group; i < rows && column.valid; i += kRows * groups) {
      RawVec<T, V> vecs[kRows];
#pragma unroll
      for (int u = 0; u < kRows; ++u) {
        if (i + u * groups >= rows) break;
        vecs[u].load(column.source + stage.items[i + u * groups]);
      }
#pragma unroll
      for (int u = 0; u < kRows; ++u) {
        if (i + u * groups >= rows) break;
        sums.add(vecs[u].values(), alpha);
      }
    }
    __syncwarp();
  }
}

// Sums the rows of a part for one tile and outer index, by a warp or a block of kTeam threads.
template <int kTeam, typename T, int V>
__device__ __forceinline__ void sum_part(const RowArgs& args, const Part& part, uint32_t slice,
                                         const Stage& stage, Sums<T, V>* shared) {
  const SegmentArgs& segments = args.segments;
  const uint32_t group = threadIdx.x % kTeam / args.lanes, lane = threadIdx.x % args.lanes;
  const uint32_t groups = kTeam / args.lanes;
  uint32_t outer = slice;
  const uint32_t tile = args.tiles.divmod(outer);
  const Column<T, V> column(args, tile, outer, lane);
  Sums<T, V> sums;
  constexpr uint32_t kWarps = kTeam / 32;
  const uint32_t warp = threadIdx.x % kTeam / 32;
  const uint64_t rows = part.end - part.begin;
  sum_rows_of_warp(args, column, stage, part.begin + static_cast<uint32_t>(rows * warp / kWarps),
                   part.begin + static_cast<uint32_t>(rows * (warp + 1) / kWarps), sums);
  sum_groups<kTeam>(sums, shared, args.lanes);
  if constexpr (kTeam == kRowThreads) {
    if (part.count > 1) {
      __shared__ uint32_t summed_before;
      const uint64_t slices = uint64_t{args.tiles.divisor} * args.outer_size;
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
      if (summed_before + 1 < part.count) return;  // another block will be the last
      __threadfence();
      sums = Sums<T, V>();
#pragma unroll(16 / V)
      for (uint32_t i = group; i < part.count; i += groups) {
        sums.add(load_from_l2(&part_sums[i * next]));
      }
      sum_groups<kTeam>(sums, shared, args.lanes);
    }
  }
  if (group == 0 && column.valid) {
    const uint64_t bin = segments.bin(segments.entries[part.begin]);
    T* row = column.self + static_cast<int64_t>(bin) * args.bin_stride;
    store_vec(row, sums.added_to(load_vec<T, V>(row)));
  }
}

template <typename T, int V>
__device__ __forceinline__ void sum_long_segments(const RowArgs& args, Sums<T, V>* shared) {
  const SegmentArgs& segments = args.segments;
  const uint32_t warp = threadIdx.x / 32;
  const Stage stage(shared + kRowThreads, warp, args.range_entries);
  const uint64_t slices = uint64_t{args.tiles.divisor} * args.outer_size;
  const uint64_t block_items = segments.counters->block_parts * slices;
  for (uint64_t item = blockIdx.x; item < block_items; item += args.workers) {
    sum_part<kRowThreads, T, V>(args, segments.block_part(static_cast<uint32_t>(item / slices)),
                                static_cast<uint32_t>(item % slices), stage, shared);
  }
  __syncthreads();
  const uint64_t warp_items = segments.counters->warp_parts * slices;
  for (uint64_t item = blockIdx.x * kRowWarps + warp; item < warp_items;
       item += args.workers * kRowWarps) {
    sum_part<32, T, V>(args, segments.parts[item / slices], static_cast<uint32_t>(item % slices),
                       stage, shared + warp * 32);
  }
}

// The first args.workers blocks sum long segments, since these take longest. A launch of their own
// after the short ones is slower (Zipf 1.1 in f32: 293 us against 270 us, on an H200). Each of the
// other blocks has eight warps. A warp has one (outer index, range of entries, tile of the rows).
// The tile is innermost, so that neighbouring warps read whole rows.
template <typename T, int V>
__global__ __launch_bounds__(kRowThreads, row_blocks_per_sm(V)) void sum_rows(const RowArgs args) {
  extern __shared__ uint4 staged[];
  auto* shared = reinterpret_cast<Sums<T, V>*>(staged);  // sums of threads, then stages
  grid_dependency_wait();
  launch_dependents();
  if (blockIdx.x < args.workers) {
    sum_long_segments<T, V>(args, shared);
  } else {
    sum_short_segments<T, V>(args, shared);
  }
}

// ---------------------------------------------------------------- launch

template <typename T>
cudaError_t launch(const SortedPlan& plan, Workspace& workspace, cudaStream_t stream) {
  RowArgs args = plan.args;
  SegmentArgs& segments = args.segments;
  auto* zeroed =
      static_cast<uint32_t*>(workspace.allocate(sizeof(uint32_t) * plan.sort.num_zeroed));
  segments.counters = reinterpret_cast<Counters*>(zeroed);
  args.tickets = reinterpret_cast<uint32_t*>(segments.counters + 1);
  segments.parts =
      static_cast<Part*>(workspace.allocate(sizeof(Part) * (size_t{segments.capacity} + 1)));
  if (plan.sum_bytes > 0) args.part_sums = workspace.allocate(plan.sum_bytes);
  cudaError_t error = sort_index(plan.sort, zeroed, workspace, stream, &segments.entries);
  if (error == cudaSuccess && args.workers > 0) {
    error = find_long_segments(plan.find, segments, stream);
  }
  if (error != cudaSuccess) return error;
  return with_values<T>(plan.values, [&](auto values) {
    return launch_kernel(sum_rows<T, values>, plan.sum, stream, args);
  });
}

}  // namespace gpuopt::index_add
