// A problem and its path -> how it is cut into blocks and groups. Plain host C++: tests run it
// without a GPU.
#pragma once

#include "index_add/index_add_path.h"

namespace gpuopt::index_add {

// An entry of the index while it is sorted: its bin above its position.
struct SortPlan {
  int position_bits = 0;
  int passes = 1;
  int digit_bits = 0;
  int items = 1;  // of a thread
  int64_t tiles = 0;
  bool one_tile = false;  // sorted by one block; else blocks move all entries, pass by pass
  int64_t tiles_per_block = 1;
  int64_t blocks = 0;
  int64_t tile() const { return int64_t{kSortThreads} * items; }
};

struct Plan {
  Path path = Path::kAtomic;
  Layout layout;
  // A lane reads and writes `values` neighbours of a row at once.
  int values = 1;
  int64_t units = 1;  // of a row: accesses of a lane

  // kAtomic: how many frequent bins have their sums in shared memory; 0 if nobody looks for them.
  int64_t hot_bins = 0;
  // kAtomic: rows of a block's tile, which sums those of one bin, and units of each; 0 if all rows
  // are added by themselves.
  int64_t tile_rows = 0, tile_units = 0;
  int tile_threads = 0;
  int64_t thread_units = 1;  // that a thread has under way

  // kSorted: `lanes` neighbours form a group, which sums rows; a row has `tiles` of them.
  int lanes = 1;
  int64_t tiles = 1;
  int group_entries = 1;  // that begin in the range of one group
  int64_t entries = 0;
  int64_t warp_rows = 0;  // of a long segment, summed by one warp
  int64_t part_rows = 0;  // the same by one block, in several parts if it has more
  int64_t range_entries() const { return int64_t{kWarp} / lanes * group_entries; }
  // Short segments: a warp's each.
  int64_t ranges() const { return ceil_div(entries, range_entries()); }
  int64_t tasks() const { return ranges() * tiles * layout.outer_size; }

  // kBins: `outer_group` outer indices have `splits` blocks, which keep `copies` of the bins each.
  // There `values` are those of neighbouring entries.
  int outer_group = 1;
  int copies = 1;
  int64_t splits = 1;
  int64_t split_values = 0;

  // kLines: a block takes `outer_group` outer indices, and each of its threads `thread_entries` of
  // the sorted entries. `values` is 2 where neighbouring entries are read at once.
  int64_t thread_entries = 0;
};

// Lanes of a group: few enough that at most a fifth of them is idle, if that leaves accesses of a
// row in reach of each other.
inline int lanes_for(int64_t units) {
  if (units < 8) return static_cast<int>(pow2_ceil(units));
  for (const int lanes : {32, 16, 8}) {
    if (ceil_div<int64_t>(units, lanes) * lanes * 4 <= units * 5) return lanes;
  }
  return static_cast<int>(std::min<int64_t>(pow2_ceil(units), kWarp));
}

// Of an entry while it is sorted, below its bin.
inline int position_bits_for(int64_t bins) {
  return std::min(kMaxPositionBits, 64 - detail::bits_for(bins));
}

constexpr int sort_shared_bytes(int items) {
  return 8 * kSortThreads * items + 2 * kSortWarps * kCountStride + 4 * kDigits + 4 * kSortWarps;
}

// Tiles are as small as leaves them to as many blocks as are to have one.
inline SortPlan plan_sort(int64_t entries, int64_t bins, const Device& device) {
  SortPlan sort;
  const int bits = detail::bits_for(bins);
  sort.position_bits = position_bits_for(bins);
  sort.passes = std::max(ceil_div(bits, kMaxDigitBits), 1);
  sort.digit_bits = ceil_div(bits, sort.passes);
  sort.one_tile =
      entries <= kMaxTileEntries && sort_shared_bytes(kMaxTileItems) <= device.shared_bytes;
  const int most_blocks = sort.one_tile ? 1 : std::min(device.multiprocessors, kMaxSortBlocks);
  while (sort.items < kMaxSortItems && sort.tile() * most_blocks < entries &&
         sort_shared_bytes(2 * sort.items) <= device.shared_bytes) {
    sort.items *= 2;
  }
  sort.tiles = ceil_div<int64_t>(entries, sort.tile());
  sort.tiles_per_block = ceil_div<int64_t>(sort.tiles, most_blocks);
  sort.blocks = ceil_div(sort.tiles, sort.tiles_per_block);
  return sort;
}

// Of a tile's bins: at most half of the slots are taken.
inline int tile_slot_bits(int64_t rows) { return detail::bits_for(rows) + 1; }

// What a block has to find the bins that rows of its tile share.
inline int64_t tile_shared_bytes(int64_t rows) {
  return (int64_t{1} << tile_slot_bits(rows)) * 8 + rows * 4 + rows / kAggregateFrom * 8 + rows * 6;
}

// For a problem that one launch takes, along a path chosen for the whole.
inline Plan make_plan(const Problem& problem, Path path, const Device& device) {
  Plan plan;
  plan.path = path;
  plan.layout = make_layout(problem);
  const int64_t width = plan.layout.inner.size;
  if (path == Path::kBins) {
    const int64_t bytes =
        problem.bins * width * static_cast<int64_t>(accumulator_bytes(problem.dtype));
    const int64_t most = std::min(kBinSharedBytes, device.shared_bytes);
    if (plan.layout.outer_size >= int64_t{kBinOuterGroup} * device.multiprocessors &&
        bytes * kBinOuterGroup * kBinGroupCopies <= most) {
      plan.outer_group = kBinOuterGroup;
    }
    const int64_t values = problem.entries * width;
    const int64_t work = ceil_div<int64_t>(values, int64_t{2} * kBinThreads * kBinValues);
    plan.splits = std::clamp<int64_t>(device.multiprocessors / plan.layout.outer_size, 1,
                                      std::max<int64_t>(work, 1));
    plan.split_values = ceil_div<int64_t>(ceil_div(values, plan.splits), kBinPack) * kBinPack;
    // No more copies than what setting them up and adding them up costs less than the values do.
    const int64_t one = bytes * plan.outer_group;
    const int copies = plan.outer_group == 1 ? kMaxBinCopies : kWarp;
    while (plan.copies < copies && one * plan.copies * 2 <= most &&
           problem.bins * width * plan.copies * 2 <= plan.split_values) {
      plan.copies *= 2;
    }
    if (plan.outer_group == 1 && problem.index_stride == 1 &&
        reinterpret_cast<uintptr_t>(problem.index) % kAccessBytes == 0 &&
        takes_neighbours(problem, plan.layout, kBinPack)) {
      plan.values = kBinPack;
    }
    return plan;
  }
  if (path == Path::kLines) {
    const int most = line_values(size_of(problem.dtype));
    if (plan.layout.outer_size >= int64_t{most} * device.multiprocessors &&
        line_shared_bytes(problem, most) <= device.shared_bytes - kOrderStaticBytes) {
      plan.outer_group = most;
    }
    plan.thread_entries = ceil_div<int64_t>(problem.entries, kLineThreads * 4) * 4;
    plan.values = takes_neighbours(problem, plan.layout, 2) ? 2 : 1;
    return plan;
  }
  plan.values = values_per_access(problem, plan.layout);
  plan.units = width / plan.values;
  if (path == Path::kAtomic) {
    // Few units are one to a thread, so that nobody's wait for another's.
    const int64_t threads = int64_t{device.multiprocessors} * kAtomicThreads;
    plan.thread_units = std::clamp<int64_t>(
        plan.units * problem.entries * plan.layout.outer_size / threads, 1, kAtomicUnroll);
    if (aggregates(problem, plan.layout)) {
      // Tiles side by side, as wide as each other.
      plan.tile_units = ceil_div(plan.units, ceil_div<int64_t>(plan.units, kTileUnits));
      plan.tile_rows = plan.thread_units * kAtomicThreads / plan.tile_units;
      const bool few_rows = plan.thread_units == kAtomicUnroll && plan.tile_rows <= kFewRowsThreads;
      plan.tile_threads = few_rows ? kFewRowsThreads : kAtomicThreads;
    } else if (may_queue_up(problem, plan.layout)) {
      const auto bytes = static_cast<int64_t>(accumulator_bytes(problem.dtype));
      plan.hot_bins =
          std::min<int64_t>(kMaxHotBins, kHotSharedBytes / (bytes * width * kHotCopies));
    }
  }
  if (path == Path::kSorted) {
    plan.lanes = lanes_for(plan.units);
    plan.tiles = ceil_div<int64_t>(plan.units, plan.lanes);
    plan.group_entries = std::min(kShortSegment, 8 * plan.lanes);
    plan.entries = problem.entries;
    plan.warp_rows = int64_t{kGroupRows} * (kWarp / plan.lanes);
    // So that the sums of parts take no more memory than 16 bytes an entry.
    plan.part_rows = std::max({int64_t{kGroupRows} * (kRowThreads / plan.lanes),
                               ceil_div<int64_t>(plan.entries, kMaxParts),
                               plan.layout.outer_size * plan.tiles * plan.lanes * plan.values});
  }
  return plan;
}

}  // namespace gpuopt::index_add
