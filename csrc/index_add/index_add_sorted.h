// The sorted path: the index is sorted, then each row of self is read and written once. What it
// supports, when it pays, and its plan. Times are in us on an H200.
#pragma once

#include <cmath>

#include "index_add/index_add_atomic.h"
#include "index_add/index_add_problem.h"

namespace gpuopt::index_add {

// ---------------------------------------------------------------- sorting the index
constexpr int kSortThreads = 1024;
constexpr int kSortWarps = kSortThreads / 32;
constexpr int kMaxSortItems = 8;  // of a thread, in registers; a power of two
constexpr int kMaxDigitBits = 9;
constexpr int kDigits = 1 << kMaxDigitBits;
// An odd number of words, so that lanes of a column are in different banks.
constexpr int kCountStride = kDigits + 2;
constexpr int kSortGroup = 16;  // blocks that are counted together; not swept
constexpr int kMaxSortBlocks = kSortGroup * kSortGroup;
// So many entries are sorted by one block: 10 us, where passes over all take 14 (18 bits).
constexpr int kMaxTileItems = kMaxSortItems / 2;
constexpr int64_t kMaxTileEntries = 4096;
// Positions take 30 bits of a sorted entry where bins leave them: more entries are added in parts.
constexpr int kMaxPositionBits = 30;

// ---------------------------------------------------------------- summing rows in sorted order
constexpr int kRowThreads = 256;
constexpr int kRowWarps = kRowThreads / 32;
// (169343,128) += (2^20,128): f32, Zipf 1.1, 3 blocks of 8 rows 224, 4 blocks (which spill) 241;
// bf16, uniform, 4 blocks of 4 rows 158, 3 of 6 163, 3 of 4 169.
template <int V>
constexpr int kRowBlocksPerSm = V >= 8 ? 4 : 3;
// Rows that a group has in flight, of V values to a lane: wide sums leave registers for fewer.
template <int V>
constexpr int kRowsUnderWay = V >= 8 ? 4 : 8;
template <int V>
constexpr int kPartRowsUnderWay = V >= 8 ? 3 : 8;
constexpr int kShortSegment = 32;  // the longest run of equal indices that one group sums
// Rows of a long segment that a group of a warp or block sums, or more where there are many parts.
// Neither is swept.
constexpr int kGroupRows = 128;
constexpr int kMaxParts = 1024;

// ---------------------------------------------------------------- from where on it pays
// Of rows that tiles aggregate, by what either way takes of memory's time, in bytes. The sort and
// the launches after it take as long as kSortTraffic, and kSortEntryTraffic for each entry: 28 us
// and 30 for 2^20. Additions take as long as several times the source: each vector in the L2 as
// kCachedTraffic times its bytes (107 vectors a ns), and where self is not held there (uniform,
// kAddedTraffic) it is read and written for each. Uniform, by tiles and sorted: (65536,256) +=
// (131072,256) bf16 54 and 64, (169343,128) += (2^20,128) bf16 186 and 142, (32768,128) +=
// (262144,128) f32 76 and 79, (65536,128) 90 and 84, (16384,512) += (65536,512) 91 and 75,
// (65536,1024) += (16384,1024) 62 and 72. Of skewed indices tiles take a little longer, the sort
// too.
constexpr double kSortTraffic = 118e6;
constexpr double kSortEntryTraffic = 120;
constexpr double kCachedTraffic = 2.5;
constexpr double kAddedTraffic = 3.1;
constexpr double kCachedSelfBytes = 20e6;

// Of other rows: with fewer entries the sort takes longer than additions that queue up, and with
// shorter rows frequent bins do in shared memory.
constexpr double kSortSourceBytes = 24 << 20;
constexpr int64_t kSortEntries = 1 << 15;
constexpr int64_t kSortRepeats = 4;  // or so many entries to a bin; not swept
constexpr int64_t kSortRowBytes = 128;

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

// `lanes` neighbours form a group, which sums rows.
struct SortedPlan {
  SortPlan sort;
  int values = 1;     // of a thread's access
  int64_t units = 1;  // accesses of a row
  int lanes = 1;
  int64_t tiles = 1;          // of a row, of `lanes` units
  int group_entries = 1;      // that begin in the range of one group
  int64_t range_entries = 0;  // of the groups of a warp
  int64_t ranges = 0;         // stretches of entries, whose short segments are a warp's
  int64_t tasks = 0;          // of warps: ranges * tiles * outer indices
  int64_t warp_rows = 0;      // of a long segment that one warp sums, at most
  int64_t part_rows = 0;      // of a part of a longer segment, which one block sums
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
  return std::min(kMaxPositionBits, 64 - bits_for(bins));
}

constexpr int sort_shared_bytes(int items) {
  return 8 * kSortThreads * items + 2 * kSortWarps * kCountStride + 4 * kDigits + 4 * kSortWarps;
}

// Where either is allowed: whether the sort costs less than what it saves.
inline bool sorting_pays(const Problem& problem, const Layout& layout) {
  const auto row_bytes = layout.inner.size * static_cast<int64_t>(size_of(problem.dtype));
  const double slice = static_cast<double>(row_bytes) * static_cast<double>(layout.outer_size);
  const auto entries = static_cast<double>(problem.entries);
  const auto bins = static_cast<double>(problem.bins);
  // Vectors of these are added by one instruction on sm_90.
  const bool vector_additions = is_half(problem.dtype) || problem.dtype == DType::kFloat32;
  if (aggregates(problem, layout) && vector_additions) {
    // If all bins are as frequent.
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

// Tiles are as small as leaves them to as many blocks as are to have one.
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
  // So that the sums of parts take no more memory than 16 bytes an entry.
  plan.part_rows = std::max({int64_t{kGroupRows} * (kRowThreads / plan.lanes),
                             ceil_div<int64_t>(problem.entries, kMaxParts),
                             layout.outer_size * plan.tiles * plan.lanes * plan.values});
  return plan;
}

}  // namespace gpuopt::index_add
