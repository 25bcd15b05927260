// The sorted path: the index is sorted, then each row of self is read and written once. This file
// says what the path supports and when it is faster, and plans it. Times are in us on an H200.
#pragma once

#include <cmath>

#include "index_add/index_add_problem.h"
#include "index_add/paths/index_add_atomic.h"
#include "index_sort/index_sort.h"

namespace gpuopt::index_add {

constexpr int kRowThreads = 256;
constexpr int kRowWarps = kRowThreads / 32;
// Blocks per SM. (169343,128) += (2^20,128) in f32 with Zipf 1.1 takes 224 with three blocks and 8
// rows in flight, 241 with four blocks, which spill. In bf16 with uniform indices it takes 158 with
// four blocks and 4 rows, 163 with three and 6, 169 with three and 4.
constexpr int row_blocks_per_sm(int values) { return values >= 8 ? 4 : 3; }
// Rows that a group has in flight, with V values per lane. Wide sums leave registers for fewer
// rows.
template <int V>
constexpr int kRowsUnderWay = V >= 8 ? 4 : 8;
template <int V>
constexpr int kPartRowsUnderWay = V >= 8 ? 3 : 8;
// The longest run of equal indices that one group sums, and the rows of a longer run that each
// group of a warp or block sums.
constexpr int kShortSegment = 32;

// Some rows of a long segment.
struct Part {
  uint32_t begin, end;  // in the sorted index
  uint32_t number;      // among the `count` parts of the segment
  uint32_t count;
  uint32_t slot;  // of the sum of part 0, if there are several parts
};

// Must be zero before find_long_segments().
struct Counters {
  uint32_t warp_parts;
  uint32_t block_parts;
  uint32_t slots;
};

struct SegmentArgs {
  const uint64_t* entries = nullptr;
  uint32_t count = 0;
  int position_bits = 0;
  uint32_t warp_rows = 0;  // most rows of a segment that one warp sums
  uint32_t part_rows = 0;  // rows of a part that a block sums
  Counters* counters = nullptr;
  Part* parts = nullptr;  // for warps from the front on, for blocks from the back
  uint32_t capacity = 0;  // of `parts`

  GPUOPT_HOST_DEVICE uint64_t bin(uint64_t entry) const { return entry >> position_bits; }
  GPUOPT_HOST_DEVICE uint64_t position(uint64_t entry) const {
    return entry & ((uint64_t{1} << position_bits) - 1);
  }
  GPUOPT_HOST_DEVICE Part& block_part(uint32_t number) const {
    return parts[capacity - 1 - number];
  }
};

struct RowArgs {
  void* self = nullptr;          // [outer][bin][row], strided
  const void* source = nullptr;  // [outer][entry][row], strided
  SegmentArgs segments;
  int64_t bin_stride = 0;
  int64_t entry_stride = 0;
  int64_t self_inner_stride = 0;
  int64_t source_inner_stride = 0;
  uint32_t units = 0;  // per row
  uint32_t lanes = 0;  // per group
  uint32_t group_entries = 0;
  uint32_t range_entries = 0;  // of all groups of a warp
  FastDiv tiles;               // of a row
  FastDiv ranges;              // ranges of entries, one per warp
  uint32_t tasks = 0;          // warps for short segments: tiles * ranges * outer_size
  uint32_t workers = 0;        // blocks for long segments
  OuterDims outer;
  uint32_t outer_size = 0;
  ScalarValue alpha;
  uint32_t* tickets = nullptr;  // [slot][outer][tile]: finished parts of a segment
  void* part_sums = nullptr;    // [slot][outer][tile][lane]
};

// How rows are summed. A group of neighbouring lanes sums rows.
struct SortedPlan {
  SortPlan sort;
  int values = 1;  // per access of a thread
  RowArgs args;
  size_t sum_bytes = 0;   // of the sums of parts, if a segment may have several
  LaunchShape find, sum;  // `find` only if there are workers
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

// Whether sorting is faster than adding atomically, for problems that allow both.
inline bool sorting_pays(const Problem& problem, const Layout& layout, const Tuning& tuning) {
  const auto row_bytes = layout.inner.size * static_cast<int64_t>(size_of(problem.dtype));
  const double slice = static_cast<double>(row_bytes) * static_cast<double>(layout.outer_size);
  const auto entries = static_cast<double>(problem.entries);
  const auto bins = static_cast<double>(problem.bins);
  // On sm_90 one instruction adds a vector of these types.
  const bool vector_additions = is_half(problem.dtype) || problem.dtype == DType::kFloat32;
  if (aggregates(problem, layout, tuning) && vector_additions) {
    // Bytes of the rows of self that are named, if all bins are equally frequent.
    const double touched = slice * bins * (1 - std::exp(-entries / bins));
    return tuning.added_traffic * slice * entries > slice * entries + 2 * touched +
                                                        tuning.sort_traffic +
                                                        tuning.sort_entry_traffic * entries;
  }
  return row_bytes >= tuning.sort_row_bytes && slice * entries >= tuning.sort_source_bytes;
}

inline bool takes_sorting(const Problem& problem, const Layout& layout, const Tuning& tuning) {
  if (is_ordered(problem)) return true;
  if (problem.mode == Mode::kAccurate && is_half(problem.dtype)) return true;
  return sorting_pays(problem, layout, tuning);
}

inline SortedPlan plan_sorted(const Problem& problem, const Layout& layout, const Device& device,
                              const Tuning& tuning) {
  SortedPlan plan;
  RowArgs& args = plan.args;
  plan.values = values_per_access(problem, layout);
  const int64_t entries = problem.entries, units = layout.inner.size / plan.values;
  const int lanes = lanes_for(units);
  const int64_t slices = ceil_div<int64_t>(units, lanes) * layout.outer_size;
  set_operands(args, problem, layout);
  args.units = static_cast<uint32_t>(units);
  args.lanes = static_cast<uint32_t>(lanes);
  args.group_entries = static_cast<uint32_t>(std::min(kShortSegment, 8 * lanes));
  args.range_entries = static_cast<uint32_t>(kWarp / lanes) * args.group_entries;
  const int64_t ranges = ceil_div<int64_t>(entries, args.range_entries);
  args.tiles = divide_by(ceil_div<int64_t>(units, lanes));
  args.ranges = divide_by(ranges);
  args.tasks = static_cast<uint32_t>(ranges * slices);
  args.outer_size = static_cast<uint32_t>(layout.outer_size);

  // Rows of a part of a segment that a block sums. The last limit keeps the sums of parts below 16
  // bytes of memory per entry.
  const int64_t part_rows =
      std::max({int64_t{kShortSegment} * (kRowThreads / lanes), ceil_div(entries, tuning.max_parts),
                slices * lanes * plan.values});
  // All parts of a segment except the last are full, so segments of several parts have at most this
  // many parts.
  const int64_t slots = entries > part_rows ? 2 * (entries / part_rows) : 0;
  SegmentArgs& segments = args.segments;
  segments.count = static_cast<uint32_t>(entries);
  segments.position_bits = position_bits_for(problem.bins, tuning);
  segments.warp_rows = static_cast<uint32_t>(kShortSegment * (kWarp / lanes));
  segments.part_rows = static_cast<uint32_t>(part_rows);
  segments.capacity = static_cast<uint32_t>(entries / kShortSegment + slots);
  plan.sum_bytes =
      static_cast<size_t>(slots * slices * lanes * plan.values) * sum_bytes(problem.dtype);
  // The counters and a ticket for each part are zeroed.
  const auto words = static_cast<int64_t>(sizeof(Counters) / sizeof(uint32_t)) + slots * slices;
  plan.sort = plan_sort(make_index(problem), entries, static_cast<uint32_t>(words), device, tuning);

  if (entries > kShortSegment) {
    args.workers = static_cast<uint32_t>(std::min<int64_t>(
        entries / kShortSegment * slices, int64_t{row_blocks_per_sm(plan.values)} * device.sms));
    plan.find.threads = kRowThreads;
    plan.find.blocks = ceil_div(segments.count, static_cast<uint32_t>(kRowThreads * kShortSegment));
    plan.find.use_pdl = true;
  }
  const size_t chunks = args.range_entries / kShortSegment + 1;
  plan.sum.threads = kRowThreads;
  plan.sum.blocks =
      args.workers + static_cast<unsigned>(ceil_div<int64_t>(ranges * slices, kRowWarps));
  plan.sum.shared_bytes =
      sum_bytes(problem.dtype) * static_cast<size_t>(plan.values) * kRowThreads +
      sizeof(uint64_t) * kRowWarps * (chunks * (2 * kShortSegment + 1) + 1);
  plan.sum.use_pdl = true;
  return plan;
}

template <typename F>
void describe(const SortedPlan& plan, F&& f) {
  const PassArgs& sort = plan.sort.args;
  f("path", "sorted");
  f("one_tile", plan.sort.one_tile);
  f("passes", plan.sort.passes);
  f("position_bits", sort.source.position_bits);
  f("digit_bits", sort.digit.bits);
  f("sort_tile", kSortThreads * plan.sort.items);
  f("block_entries", sort.block_entries);
  f("sort_blocks", plan.sort.move.blocks);
  f("sort_bytes", plan.sort.move.shared_bytes);
  f("num_zeroed", plan.sort.num_zeroed);
  f("values", plan.values);
  f("units", plan.args.units);
  f("lanes", plan.args.lanes);
  f("tiles", plan.args.tiles.divisor);
  f("group_entries", plan.args.group_entries);
  f("range_entries", plan.args.range_entries);
  f("tasks", plan.args.tasks);
  f("warp_rows", plan.args.segments.warp_rows);
  f("part_rows", plan.args.segments.part_rows);
  f("sum_bytes", plan.sum_bytes);
  f("blocks", plan.sum.blocks);
}

}  // namespace gpuopt::index_add
