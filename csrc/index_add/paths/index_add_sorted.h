// The sorted path: the index is sorted, then each row of self is read and written once. This file
// says what the path supports and when it is faster, and plans it. Times are in us on an H200.
#pragma once

#include <cmath>

#include "index_add/index_add_problem.h"
#include "index_add/paths/index_add_atomic.h"

namespace gpuopt::index_add {

// ---------------------------------------------------------------- sorting the index
constexpr int kSortThreads = 1024;
constexpr int kSortWarps = kSortThreads / 32;
constexpr int kMaxSortItems = 8;  // entries per thread, in registers; a power of two
constexpr int kMaxDigitBits = 9;
constexpr int kDigits = 1 << kMaxDigitBits;
// An odd number of words, so that lanes of a column are in different banks.
constexpr int kCountStride = kDigits + 2;
constexpr int kSortGroup = 16;  // blocks that are counted together; not swept
constexpr int kMaxSortBlocks = kSortGroup * kSortGroup;
// Up to kMaxTileEntries entries are sorted by one block: this takes 10, and passes over all blocks
// take 14 (18 bits). Blocks that sort runs and merge them are slower: 22 for 2^14 entries, where
// passes over all blocks take 15.
constexpr int kMaxTileItems = kMaxSortItems / 2;
constexpr int64_t kMaxTileEntries = 4096;
// The position of a sorted entry has 30 bits, if its bin leaves as many. Larger problems are added
// in parts.
constexpr int kMaxPositionBits = 30;

// ---------------------------------------------------------------- summing rows in sorted order
constexpr int kRowThreads = 256;
constexpr int kRowWarps = kRowThreads / 32;
// Blocks per SM. (169343,128) += (2^20,128) in f32 with Zipf 1.1 takes 224 with three blocks and 8
// rows in flight, 241 with four blocks, which spill. In bf16 with uniform indices it takes 158 with
// four blocks and 4 rows, 163 with three and 6, 169 with three and 4.
template <int V>
constexpr int kRowBlocksPerSm = V >= 8 ? 4 : 3;
// Rows that a group has in flight, with V values per lane. Wide sums leave registers for fewer
// rows.
template <int V>
constexpr int kRowsUnderWay = V >= 8 ? 4 : 8;
template <int V>
constexpr int kPartRowsUnderWay = V >= 8 ? 3 : 8;
constexpr int kShortSegment = 32;  // the longest run of equal indices that one group sums
// Rows of a long segment that a group of lanes sums. There are more if the number of parts would
// exceed kMaxParts. Neither is swept.
constexpr int kGroupRows = 128;
constexpr int kMaxParts = 1024;

// ---------------------------------------------------------------- when sorting is faster
// For rows that tiles support. The memory time of either way is compared, expressed in bytes. The
// sort and the launches after it take as long as kSortTraffic bytes, and kSortEntryTraffic bytes
// per entry: 28, and 30 for 2^20 entries. Additions take as long as a multiple of the source's
// bytes. If self is in the L2 cache, it is kCachedTraffic (107 vectors per ns). If not, each
// addition reads and writes self in memory, and it is kAddedTraffic for uniform indices. Skewed
// indices take a little longer, by tiles and sorted. Uniform indices, by tiles and sorted:
//   (65536,256) += (131072,256) bf16     54 and  64
//   (169343,128) += (2^20,128) bf16     186 and 142
//   (32768,128) += (262144,128) f32      76 and  79
//   (65536,128) += (262144,128) f32      90 and  84
//   (16384,512) += (65536,512) f32       91 and  75
//   (65536,1024) += (16384,1024) f32     62 and  72
constexpr double kSortTraffic = 118e6;
constexpr double kSortEntryTraffic = 120;
constexpr double kCachedTraffic = 2.5;
constexpr double kAddedTraffic = 3.1;
constexpr double kCachedSelfBytes = 20e6;

// Limits for other rows. With fewer entries, the sort takes longer than additions that queue up.
// With shorter rows, it takes longer than frequent bins in shared memory.
constexpr double kSortSourceBytes = 24 << 20;
constexpr int64_t kSortEntries = 1 << 15;
constexpr int64_t kSortRepeats = 4;  // or this many entries per bin; not swept
constexpr int64_t kSortRowBytes = 128;

// How the index is sorted. A sorted entry has its bin in the high bits and its position in the low
// bits.
struct SortPlan {
  int position_bits = 0;
  int passes = 1;
  int digit_bits = 0;
  int items = 1;  // entries per thread
  int64_t tiles = 0;
  bool one_tile = false;  // one block sorts all; else blocks move entries, pass by pass
  int64_t tiles_per_block = 1;
  int64_t blocks = 0;
  int64_t tile() const { return int64_t{kSortThreads} * items; }
};

// How rows are summed. A group of `lanes` neighbouring lanes sums rows.
struct SortedPlan {
  SortPlan sort;
  int values = 1;     // per access of a thread
  int64_t units = 1;  // accesses per row
  int lanes = 1;
  int64_t tiles = 1;          // of a row, with `lanes` units each
  int group_entries = 1;      // in the range of a group
  int64_t range_entries = 0;  // in the ranges of all groups of a warp
  int64_t ranges = 0;         // of entries, one per warp
  int64_t tasks = 0;          // one per warp: ranges * tiles * outer indices
  int64_t warp_rows = 0;      // most rows of a long segment that one warp sums
  int64_t part_rows = 0;      // rows of a part of a longer segment, for one block
};

// Lanes of a group: the largest of 32, 16 and 8 that leaves at most a fifth of them idle. If there
// is none, and for short rows, a power of two that covers the row, up to a warp.
inline int lanes_for(int64_t units) {
  if (units < 8) return static_cast<int>(pow2_ceil(units));
  for (const int lanes : {32, 16, 8}) {
    if (ceil_div<int64_t>(units, lanes) * lanes * 4 <= units * 5) return lanes;
  }
  return static_cast<int>(std::min<int64_t>(pow2_ceil(units), kWarp));
}

// Bits of the position in a sorted entry.
inline int position_bits_for(int64_t bins) {
  return std::min(kMaxPositionBits, 64 - bits_for(bins));
}

constexpr int sort_shared_bytes(int items) {
  return 8 * kSortThreads * items + 2 * kSortWarps * kCountStride + 4 * kDigits + 4 * kSortWarps;
}

// Whether sorting is faster than adding atomically, for problems that allow both.
inline bool sorting_pays(const Problem& problem, const Layout& layout) {
  const auto row_bytes = layout.inner.size * static_cast<int64_t>(size_of(problem.dtype));
  const double slice = static_cast<double>(row_bytes) * static_cast<double>(layout.outer_size);
  const auto entries = static_cast<double>(problem.entries);
  const auto bins = static_cast<double>(problem.bins);
  // On sm_90 one instruction adds a vector of these types.
  const bool vector_additions = is_half(problem.dtype) || problem.dtype == DType::kFloat32;
  if (aggregates(problem, layout) && vector_additions) {
    // Bytes of the rows of self that are named, if all bins are equally frequent.
    const double touched = slice * bins * (1 - std::exp(-entries / bins));
    const double added = slice * bins > kCachedSelfBytes ? kAddedTraffic : kCachedTraffic;
    return added * slice * entries >
           slice * entries + 2 * touched + kSortTraffic + kSortEntryTraffic * entries;
  }
  const bool many =
      problem.entries >= kSortEntries || problem.entries >= kSortRepeats * problem.bins;
  return many && row_bytes >= kSortRowBytes && slice * entries >= kSortSourceBytes;
}

inline bool takes_sorting(const Problem& problem, const Layout& layout) {
  if (is_ordered(problem)) return true;
  if (problem.mode == Mode::kAccurate && is_half(problem.dtype)) return true;
  return sorting_pays(problem, layout);
}

// Tiles are as small as possible while every block has at most one tile, up to the largest tile.
inline SortPlan plan_sort(int64_t entries, int64_t bins, const Device& device) {
  SortPlan sort;
  const int bits = bits_for(bins);
  sort.position_bits = position_bits_for(bins);
  sort.passes = std::max(ceil_div(bits, kMaxDigitBits), 1);
  sort.digit_bits = ceil_div(bits, sort.passes);
  sort.one_tile =
      entries <= kMaxTileEntries && sort_shared_bytes(kMaxTileItems) <= device.shared_bytes;
  const int most_blocks = sort.one_tile ? 1 : std::min(device.sms, kMaxSortBlocks);
  while (sort.items < kMaxSortItems && sort.tile() * most_blocks < entries &&
         sort_shared_bytes(2 * sort.items) <= device.shared_bytes) {
    sort.items *= 2;
  }
  sort.tiles = ceil_div<int64_t>(entries, sort.tile());
  sort.tiles_per_block = ceil_div<int64_t>(sort.tiles, most_blocks);
  sort.blocks = ceil_div(sort.tiles, sort.tiles_per_block);
  return sort;
}

inline SortedPlan plan_sorted(const Problem& problem, const Layout& layout, const Device& device) {
  SortedPlan plan;
  plan.sort = plan_sort(problem.entries, problem.bins, device);
  plan.values = values_per_access(problem, layout);
  plan.units = layout.inner.size / plan.values;
  plan.lanes = lanes_for(plan.units);
  plan.tiles = ceil_div<int64_t>(plan.units, plan.lanes);
  plan.group_entries = std::min(kShortSegment, 8 * plan.lanes);
  plan.range_entries = int64_t{kWarp} / plan.lanes * plan.group_entries;
  plan.ranges = ceil_div(problem.entries, plan.range_entries);
  plan.tasks = plan.ranges * plan.tiles * layout.outer_size;
  plan.warp_rows = int64_t{kGroupRows} * (kWarp / plan.lanes);
  // The last limit keeps the sums of parts below 16 bytes of memory per entry.
  plan.part_rows = std::max({int64_t{kGroupRows} * (kRowThreads / plan.lanes),
                             ceil_div<int64_t>(problem.entries, kMaxParts),
                             layout.outer_size * plan.tiles * plan.lanes * plan.values});
  return plan;
}

}  // namespace gpuopt::index_add
