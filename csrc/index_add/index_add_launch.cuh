// Plan -> kernel instantiation -> launch, for one element type.
#pragma once

#include "index_add/index_add.h"
#include "index_add/index_add_aggregate.cuh"
#include "index_add/index_add_bins.cuh"
#include "index_add/index_add_hot.cuh"
#include "index_add/index_add_lines.cuh"
#include "index_add/index_add_rows.cuh"
#include "index_add/index_add_sort.cuh"

namespace gpuopt::index_add {

// A call of add() on elements of one type.
struct Addition {
  const Problem& problem;
  const Device& device;
  Workspace& workspace;
  cudaStream_t stream;
};

inline Index make_index(const Problem& problem) {
  Index index;
  index.values = problem.index;
  index.is_long = problem.long_index;
  index.stride = problem.index_stride;
  index.bins = problem.bins;
  return index;
}

inline OuterDims make_outer(const Layout& layout) {
  OuterDims outer;
  outer.count = layout.num_outer;
  for (int d = 0; d < layout.num_outer; ++d) {
    outer.sizes[d] = divide_by(layout.outer[d].size);
    outer.self_strides[d] = layout.outer[d].self_stride;
    outer.source_strides[d] = layout.outer[d].source_stride;
  }
  return outer;
}

template <typename T, int V>
cudaError_t launch_atomic(const Addition& addition, const Plan& plan) {
  const Problem& problem = addition.problem;
  AtomicArgs args;
  args.self = problem.self;
  args.source = problem.source;
  args.index = make_index(problem);
  int64_t reach = 1 + (problem.bins - 1) * problem.bin_stride;
  for (int d = 0; d < problem.num_dims; ++d) {
    reach += (problem.dims[d].size - 1) * problem.dims[d].self_stride;
  }
  args.first_byte = reinterpret_cast<uint64_t>(problem.self);
  args.end_byte = args.first_byte + static_cast<uint64_t>(reach) * sizeof(T);
  args.bin_stride = problem.bin_stride;
  args.entry_stride = problem.entry_stride;
  args.self_inner_stride = plan.layout.inner.self_stride;
  args.source_inner_stride = plan.layout.inner.source_stride;
  args.entries = static_cast<uint32_t>(problem.entries);
  args.units = divide_by(plan.units);
  args.outer = make_outer(plan.layout);
  args.total_units = static_cast<uint64_t>(plan.units * problem.entries * plan.layout.outer_size);
  args.alpha = problem.alpha;
  LaunchShape shape;
  shape.threads = kAtomicThreads;
  if (plan.hot_bins > 0) {
    const auto blocks = static_cast<uint64_t>(kHotBlocksPerSm * addition.device.multiprocessors);
    const auto block_units = static_cast<uint32_t>(ceil_div<uint64_t>(args.total_units, blocks));
    shape.blocks = static_cast<unsigned>(ceil_div<uint64_t>(args.total_units, block_units));
    shape.shared_bytes =
        static_cast<size_t>(plan.hot_bins * plan.layout.inner.size) * kHotCopies * sizeof(Sum<T>);
    auto* list = static_cast<HotList*>(addition.workspace.allocate(sizeof(HotList)));
    LaunchShape one_block;
    one_block.threads = kHotSamples;
    const cudaError_t error =
        launch_kernel(find_hot_bins<kHotSamples>, one_block, addition.stream, args.index,
                      args.entries, static_cast<uint32_t>(plan.hot_bins), list);
    if (error != cudaSuccess) return error;
    shape.overlaps_before = true;
    return launch_kernel(add_with_hot_bins<T, V>, shape, addition.stream, args, block_units, list);
  }
  if constexpr (!std::is_same_v<T, Bool> && V == kPackSize<T>) {
    if (plan.tile_rows > 0) {
      TileArgs tile;
      tile.rows = static_cast<uint32_t>(plan.tile_rows);
      tile.slot_bits = static_cast<uint32_t>(tile_slot_bits(plan.tile_rows));
      tile.row_units = static_cast<uint32_t>(plan.units);
      tile.columns = divide_by(ceil_div(plan.units, plan.tile_units));
      tile.per_outer = FastDiv(ceil_div(args.entries, tile.rows));
      args.units = divide_by(plan.tile_units);
      shape.blocks = tile.columns.divisor * tile.per_outer.divisor *
                     static_cast<unsigned>(plan.layout.outer_size);
      shape.shared_bytes = static_cast<size_t>(tile_shared_bytes(plan.tile_rows));
      shape.threads = static_cast<unsigned>(plan.tile_threads);
      return launch_kernel(plan.tile_threads == kFewRowsThreads
                               ? add_aggregated<T, V, kFewRowsThreads>
                               : add_aggregated<T, V, kAtomicThreads>,
                           shape, addition.stream, args, tile);
    }
  }
  const auto block_units = static_cast<uint32_t>(plan.thread_units) * kAtomicThreads;
  shape.blocks = static_cast<unsigned>(ceil_div<uint64_t>(args.total_units, block_units));
  return launch_kernel(add_atomically<T, V>, shape, addition.stream, args, block_units);
}

template <typename Kernel>
cudaError_t allow_shared(Kernel kernel, size_t bytes) {
  if (bytes <= 48 << 10) return cudaSuccess;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(bytes));
}

template <typename T>
cudaError_t launch_bins(const Addition& addition, const Plan& plan) {
  const Problem& problem = addition.problem;
  BinArgs args;
  args.self = problem.self;
  args.source = problem.source;
  args.index = make_index(problem);
  args.bin_stride = problem.bin_stride;
  args.entry_stride = problem.entry_stride;
  args.self_inner_stride = plan.layout.inner.self_stride;
  args.source_inner_stride = plan.layout.inner.source_stride;
  args.width = divide_by(plan.layout.inner.size);
  args.bins = static_cast<uint32_t>(problem.bins * plan.layout.inner.size);
  args.values = static_cast<uint32_t>(problem.entries * plan.layout.inner.size);
  args.split_values = static_cast<uint32_t>(plan.split_values);
  args.splits = divide_by(plan.splits);
  args.copy_bits = static_cast<uint32_t>(detail::bits_for(plan.copies));
  args.outer = make_outer(plan.layout);
  args.outer_size = static_cast<uint32_t>(plan.layout.outer_size);
  args.alpha = problem.alpha;
  LaunchShape shape;
  shape.threads = kBinThreads;
  shape.blocks =
      ceil_div(args.outer_size, static_cast<uint32_t>(plan.outer_group)) * args.splits.divisor;
  shape.shared_bytes =
      size_t{args.bins} * static_cast<size_t>(plan.copies * plan.outer_group) * sizeof(Sum<T>);
  if (plan.splits > 1) {
    args.split_sums = addition.workspace.allocate(size_t{args.outer_size} * args.splits.divisor *
                                                  args.bins * sizeof(Sum<T>));
  }
  const auto start = [&](auto kernel) {
    const cudaError_t error = allow_shared(kernel, shape.shared_bytes);
    return error != cudaSuccess ? error : launch_kernel(kernel, shape, addition.stream, args);
  };
  const auto add_in_shared_memory = [&] {
    if (plan.values > 1) {
      return problem.long_index ? start(add_packs_in_bins<T, int64_t>)
                                : start(add_packs_in_bins<T, int32_t>);
    }
    return plan.outer_group == 1 ? start(add_in_bins<T, 1>) : start(add_in_bins<T, kBinOuterGroup>);
  };
  const cudaError_t error = add_in_shared_memory();
  if (error != cudaSuccess || plan.splits == 1) return error;
  shape.blocks = args.outer_size * ceil_div<uint32_t>(args.bins, kBinSumsX);
  shape.threads = kBinSumsX * kBinSumsY;
  shape.shared_bytes = 0;
  shape.overlaps_before = true;
  return launch_kernel(add_split_sums<T>, shape, addition.stream, args);
}

template <typename T>
cudaError_t launch_lines(const Addition& addition, const Plan& plan) {
  const Problem& problem = addition.problem;
  OrderArgs order;
  order.index = make_index(problem);
  order.entries = static_cast<uint32_t>(problem.entries);
  order.passes =
      static_cast<uint32_t>(std::max(ceil_div(detail::bits_for(problem.bins), kOrderDigitBits), 1));
  order.thread_entries = static_cast<uint32_t>(plan.thread_entries);
  order.order = static_cast<uint32_t*>(addition.workspace.allocate(
      static_cast<size_t>(plan.thread_entries) * kLineThreads * sizeof(uint32_t)));
  LineArgs args;
  args.self = problem.self;
  args.source = problem.source;
  args.order = reinterpret_cast<const uint4*>(order.order);
  args.bin_stride = problem.bin_stride;
  args.entry_stride = problem.entry_stride;
  args.entries = order.entries;
  args.bins = static_cast<uint32_t>(problem.bins);
  args.thread_entries = order.thread_entries;
  args.pairs = plan.values == 2;
  args.outer = make_outer(plan.layout);
  args.outer_size = static_cast<uint32_t>(plan.layout.outer_size);
  args.alpha = problem.alpha;

  LaunchShape shape;
  const auto start = [&](auto kernel, const auto& kernel_args) {
    const cudaError_t error = allow_shared(kernel, shape.shared_bytes);
    return error != cudaSuccess ? error
                                : launch_kernel(kernel, shape, addition.stream, kernel_args);
  };
  shape.threads = kOrderThreads;
  shape.shared_bytes = static_cast<size_t>(order_shared_bytes(problem));
  const cudaError_t error = problem.long_index ? start(order_entries<int64_t>, order)
                                               : start(order_entries<int32_t>, order);
  if (error != cudaSuccess) return error;
  constexpr int kValues = line_values(sizeof(T));
  shape.threads = kLineThreads;
  shape.blocks = ceil_div(args.outer_size, static_cast<uint32_t>(plan.outer_group));
  shape.shared_bytes = static_cast<size_t>(line_shared_bytes(problem, plan.outer_group));
  shape.overlaps_before = true;
  return plan.outer_group == 1 ? start(add_lines<T, 1>, args) : start(add_lines<T, kValues>, args);
}

// What sums of sorted rows need besides the sorted index.
struct RowMemory {
  void* zeroed = nullptr;  // Counters and tickets
  uint32_t num_zeroed = 0;
  Part* parts = nullptr;
  uint32_t num_parts = 0;
  void* sums = nullptr;
};

inline RowMemory allocate_rows(const Plan& plan, size_t sum_bytes, Workspace& workspace) {
  RowMemory memory;
  const int64_t slices = plan.tiles * plan.layout.outer_size, entries = plan.entries;
  // Of the parts of a segment that has several, all but the last are full.
  const int64_t slots = entries > plan.part_rows ? 2 * (entries / plan.part_rows) : 0;
  const auto words = static_cast<int64_t>(sizeof(Counters) / sizeof(uint32_t));
  memory.num_zeroed = static_cast<uint32_t>(words + slots * slices);
  memory.zeroed = workspace.allocate(sizeof(uint32_t) * memory.num_zeroed);
  memory.num_parts = static_cast<uint32_t>(entries / kShortSegment + slots);
  memory.parts =
      static_cast<Part*>(workspace.allocate(sizeof(Part) * (size_t{memory.num_parts} + 1)));
  if (slots > 0) {
    memory.sums = workspace.allocate(static_cast<size_t>(slots * slices * plan.lanes) *
                                     static_cast<size_t>(plan.values) * sum_bytes);
  }
  return memory;
}

template <typename T, int V>
cudaError_t launch_rows(const Addition& addition, const Plan& plan, const SortedIndex& sorted,
                        const RowMemory& memory) {
  const Problem& problem = addition.problem;
  RowArgs args;
  args.self = problem.self;
  args.source = problem.source;
  SegmentArgs& segments = args.segments;
  segments.entries = sorted.entries;
  segments.count = static_cast<uint32_t>(problem.entries);
  segments.position_bits = sorted.position_bits;
  segments.warp_rows = static_cast<uint32_t>(plan.warp_rows);
  segments.part_rows = static_cast<uint32_t>(plan.part_rows);
  segments.counters = static_cast<Counters*>(memory.zeroed);
  segments.parts = memory.parts;
  segments.capacity = memory.num_parts;
  args.bin_stride = problem.bin_stride;
  args.entry_stride = problem.entry_stride;
  args.self_inner_stride = plan.layout.inner.self_stride;
  args.source_inner_stride = plan.layout.inner.source_stride;
  args.units = static_cast<uint32_t>(plan.units);
  args.lanes = static_cast<uint32_t>(plan.lanes);
  args.group_entries = static_cast<uint32_t>(plan.group_entries);
  args.range_entries = static_cast<uint32_t>(plan.range_entries());
  args.tiles = divide_by(plan.tiles);
  args.ranges = divide_by(plan.ranges());
  args.tasks = static_cast<uint32_t>(plan.tasks());
  args.outer = make_outer(plan.layout);
  args.outer_size = static_cast<uint32_t>(plan.layout.outer_size);
  args.alpha = problem.alpha;
  args.tickets = reinterpret_cast<uint32_t*>(segments.counters + 1);
  args.part_sums = memory.sums;

  LaunchShape shape;
  shape.threads = kRowThreads;
  shape.overlaps_before = true;
  if (problem.entries > kShortSegment) {
    const cudaError_t error = find_long_segments(segments, addition.stream);
    if (error != cudaSuccess) return error;
    const int64_t most = problem.entries / kShortSegment * plan.tiles * plan.layout.outer_size;
    args.workers = static_cast<uint32_t>(
        std::min<int64_t>(most, int64_t{kRowBlocksPerSm<V>} * addition.device.multiprocessors));
  }
  shape.blocks = args.workers + static_cast<unsigned>(ceil_div<int64_t>(plan.tasks(), kRowWarps));
  const auto chunks = static_cast<size_t>(plan.range_entries() / kShortSegment + 1);
  shape.shared_bytes = sizeof(Sums<T, V>) * kRowThreads +
                       sizeof(uint64_t) * kRowWarps * (chunks * (2 * kShortSegment + 1) + 1);
  return launch_kernel(sum_rows<T, V>, shape, addition.stream, args);
}

template <typename T, int V>
cudaError_t launch_sorted(const Addition& addition, const Plan& plan) {
  const RowMemory memory = allocate_rows(plan, sizeof(Sum<T>), addition.workspace);
  SortedIndex sorted;
  const cudaError_t error =
      sort_index(make_index(addition.problem), static_cast<uint32_t>(addition.problem.entries),
                 static_cast<uint32_t*>(memory.zeroed), memory.num_zeroed, addition.device,
                 addition.workspace, addition.stream, &sorted);
  return error != cudaSuccess ? error : launch_rows<T, V>(addition, plan, sorted, memory);
}

template <typename T, int V>
cudaError_t launch_values(const Addition& addition, const Plan& plan) {
  return plan.path == Path::kSorted ? launch_sorted<T, V>(addition, plan)
                                    : launch_atomic<T, V>(addition, plan);
}

template <typename T>
cudaError_t launch(const Addition& addition, const Plan& plan) {
  if (plan.path == Path::kBins) return launch_bins<T>(addition, plan);
  if (plan.path == Path::kLines) return launch_lines<T>(addition, plan);
  constexpr int kPack = kPackSize<T>, kWord = 4 / static_cast<int>(sizeof(T));
  if constexpr (kPack <= kMaxValues) {
    if (plan.values == kPack) return launch_values<T, kPack>(addition, plan);
  }
  if constexpr (kWord > 1) {
    if (plan.values == kWord) return launch_values<T, kWord>(addition, plan);
  }
  return launch_values<T, 1>(addition, plan);
}

// Each in a source file of its own.
cudaError_t add_halves(const Addition& addition, const Plan& plan);
cudaError_t add_integers(const Addition& addition, const Plan& plan);

}  // namespace gpuopt::index_add
