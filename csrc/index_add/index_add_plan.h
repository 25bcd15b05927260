// Shape, strides, dtype and mode -> which kernels add, and how they are cut into blocks and groups.
// Plain host C++: tests run it without a GPU.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/dtype.h"
#include "common/index.h"
#include "index_add/index_add_tuning.h"

namespace gpuopt::index_add {

constexpr int kMaxDims = 65;  // ATen's 64, and the parts of complex numbers
// Outer dimensions that one launch walks; problems with more are cut into slices.
constexpr int kMaxOuterDims = 4;
constexpr int kPackBytes = 16;  // the widest access of a thread, as in common/vec.cuh
constexpr int kWarpLanes = 32;
constexpr int kMaxValues = 8;  // of a lane
// Values of an entry, and all in all, that one launch numbers.
constexpr int64_t kMaxLaunchSize = int64_t{1} << 30;
constexpr int64_t kMaxLaunchValues = int64_t{1} << 37;

// What a caller is promised beyond the sum (torch_ops/index_add.py).
enum class Mode : uint8_t { kFast, kDeterministic, kAccurate };

// A dimension of self and source other than the indexed one. Strides are in elements.
struct Dim {
  int64_t size = 1;
  int64_t self_stride = 0;
  int64_t source_stride = 0;
};

// self[.., index[entry], ..] += alpha * source[.., entry, ..]
struct Problem {
  void* self = nullptr;
  const void* source = nullptr;
  const void* index = nullptr;
  DType dtype = DType::kFloat32;  // real: complex numbers are dimensions of two parts
  bool long_index = true;         // int64, else int32
  Mode mode = Mode::kFast;
  ScalarValue alpha;
  int64_t bins = 0;     // self's size in the indexed dimension
  int64_t entries = 0;  // of the index
  int64_t bin_stride = 0;
  int64_t entry_stride = 0;
  int64_t index_stride = 0;
  int num_dims = 0;
  Dim dims[kMaxDims];  // any order, sizes positive
};

// What a plan must know of the device.
struct Device {
  int multiprocessors = 1;
  int shared_bytes = 48 << 10;  // that a block may have
};

// The other dimensions: `inner` is the one that neighbouring lanes run along, of size 1 where they
// run along the entries; a row is what an entry has of it.
struct Layout {
  Dim inner;
  int num_outer = 0;
  Dim outer[kMaxDims];
  int64_t outer_size = 1;
};

enum class Path : uint8_t {
  // Each value is added to memory atomically.
  kAtomic,
  // The index is sorted; then each row of self is read and written once.
  kSorted,
  // Few bins: each block adds up in a copy of them in shared memory.
  kBins,
  // Few entries and few bins: the index is sorted, then blocks sum rows of entries in shared memory.
  kLines,
};

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

  // kSorted: `lanes` neighbours form a group, which sums rows; a row has `tiles` of them.
  int lanes = 1;
  int64_t tiles = 1;
  int group_entries = 1;  // that begin in the range of one group
  int64_t entries = 0;
  int64_t warp_rows = 0;  // of a long segment, summed by one warp
  int64_t part_rows = 0;  // the same by one block, in several parts if it has more
  int64_t range_entries() const { return int64_t{kWarpLanes} / lanes * group_entries; }
  // Short segments: a warp's each.
  int64_t ranges() const { return ceil_div(entries, range_entries()); }
  int64_t tasks() const { return ranges() * tiles * layout.outer_size; }

  // kBins: `outer_group` outer indices have `splits` blocks, which keep `copies` of the bins each.
  // There `values` are those of neighbouring entries.
  int outer_group = 1;
  int copies = 1;
  int64_t splits = 1;
  int64_t split_values = 0;

  // kLines: a block takes `outer_group` outer indices, and each of its threads `thread_entries` of the
  // sorted entries. `values` is 2 where neighbouring entries are read at once.
  int64_t thread_entries = 0;
};

namespace detail {

inline int64_t pow2_ceil(int64_t n) {
  int64_t p = 1;
  while (p < n) p *= 2;
  return p;
}

inline int bits_for(int64_t count) {  // that tell `count` numbers apart
  int bits = 0;
  while (bits < 63 && (int64_t{1} << bits) < count) ++bits;
  return bits;
}

}  // namespace detail

inline size_t accumulator_bytes(DType dtype) { return size_of(dtype) <= 4 ? 4 : 8; }

inline bool is_inexact(DType dtype) { return category_of(dtype) == Category::kFloat; }
inline bool is_half(DType dtype) { return is_inexact(dtype) && size_of(dtype) == 2; }

inline Layout make_layout(const Problem& problem) {
  Dim dims[kMaxDims];
  int count = 0;
  for (int d = 0; d < problem.num_dims; ++d) {
    if (problem.dims[d].size != 1) dims[count++] = problem.dims[d];
  }
  std::sort(dims, dims + count, [](const Dim& a, const Dim& b) {
    return a.self_stride != b.self_stride ? a.self_stride < b.self_stride
                                          : a.source_stride < b.source_stride;
  });
  Layout layout;
  Dim merged[kMaxDims];
  int num_merged = 0;
  for (int d = 0; d < count; ++d) {
    Dim* last = num_merged > 0 ? &merged[num_merged - 1] : nullptr;
    if (last != nullptr && dims[d].self_stride == last->size * last->self_stride &&
        dims[d].source_stride == last->size * last->source_stride) {
      last->size *= dims[d].size;
    } else {
      merged[num_merged++] = dims[d];
    }
  }
  // Lanes run along the entries where those are closer together, in self and source both.
  const bool has_inner =
      num_merged > 0 && (merged[0].self_stride < problem.bin_stride ||
                         merged[0].source_stride < problem.entry_stride || problem.bins == 1);
  if (has_inner) layout.inner = merged[0];
  for (int d = has_inner ? 1 : 0; d < num_merged; ++d) {
    layout.outer[layout.num_outer++] = merged[d];
    layout.outer_size *= merged[d].size;
  }
  return layout;
}

// The widest access at which every row of self and source is aligned: a pack, 4 bytes or an element.
// Sixteen bytes to sum, at 32 bits each, would not stay in registers.
inline int values_per_access(const Problem& problem, const Layout& layout) {
  const auto size = static_cast<int64_t>(size_of(problem.dtype));
  const Dim& inner = layout.inner;
  if (inner.size > 1 && (inner.self_stride != 1 || inner.source_stride != 1)) return 1;
  for (const int64_t bytes : {int64_t{kPackBytes}, int64_t{4}}) {
    if (bytes <= size || bytes / size > kMaxValues || inner.size * size % bytes != 0) continue;
    const auto aligned = [&](int64_t stride) { return stride * size % bytes == 0; };
    bool all = reinterpret_cast<uintptr_t>(problem.self) % bytes == 0 &&
               reinterpret_cast<uintptr_t>(problem.source) % bytes == 0 &&
               aligned(problem.bin_stride) && aligned(problem.entry_stride);
    for (int d = 0; d < layout.num_outer; ++d) {
      all = all && aligned(layout.outer[d].self_stride) && aligned(layout.outer[d].source_stride);
    }
    if (all) return static_cast<int>(bytes / size);
  }
  return 1;
}

// Lanes of a group: few enough that at most a fifth of them is idle, if that leaves accesses of a row
// in reach of each other.
inline int lanes_for(int64_t units) {
  if (units < 8) return static_cast<int>(detail::pow2_ceil(units));
  for (const int lanes : {32, 16, 8}) {
    if (ceil_div<int64_t>(units, lanes) * lanes * 4 <= units * 5) return lanes;
  }
  return static_cast<int>(std::min<int64_t>(detail::pow2_ceil(units), kWarpLanes));
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

inline bool takes_few_bins(const Problem& problem, const Layout& layout) {
  if (problem.mode == Mode::kDeterministic && is_inexact(problem.dtype)) return false;
  const int64_t width = layout.inner.size;
  const auto bytes = static_cast<int64_t>(accumulator_bytes(problem.dtype));
  return width <= kMaxBinRow && problem.bins > 0 &&
         problem.bins <= kMaxBinBytes / (bytes * width) && problem.entries >= 4 * problem.bins &&
         problem.entries * width * layout.outer_size >= kMinBinValues &&
         problem.entries <= kMaxIndex32 / kMaxBinRow;
}

// Whether `count` neighbouring values of each row lie side by side, aligned to what they take, up to a
// pack.
inline bool takes_neighbours(const Problem& problem, const Layout& layout, int count) {
  const auto size = static_cast<int64_t>(size_of(problem.dtype));
  const int64_t bytes = std::min<int64_t>(count * size, kPackBytes);
  bool all = layout.inner.size == 1 && problem.entry_stride == 1 &&
             reinterpret_cast<uintptr_t>(problem.source) % bytes == 0;
  for (int d = 0; d < layout.num_outer; ++d) {
    all = all && layout.outer[d].source_stride * size % bytes == 0;
  }
  return all;
}

// Of an entry of `bytes` to a value.
constexpr int line_values(size_t bytes) {
  return std::min(kMaxLineValues, kMaxLineBytes / static_cast<int>(bytes));
}

// Of a block that takes `group` outer indices.
inline int64_t line_shared_bytes(const Problem& problem, int group) {
  const auto sum_bytes = static_cast<int64_t>(accumulator_bytes(problem.dtype));
  const int64_t sums = ceil_div<int64_t>(problem.bins * group * sum_bytes, kPackBytes) * kPackBytes;
  const int64_t slots = ceil_div<int64_t>(problem.entries, 16) * 16;
  return sums + slots * group * static_cast<int64_t>(size_of(problem.dtype));
}

// While the index is sorted.
inline int64_t order_shared_bytes(const Problem& problem) {
  return problem.entries * static_cast<int64_t>(sizeof(uint32_t));
}

inline bool takes_lines(const Problem& problem, const Layout& layout, const Device& device) {
  if (layout.inner.size != 1 || problem.bins < 1 || problem.bins > UINT16_MAX ||
      problem.entries > kOrderThreads * kOrderItems ||
      line_shared_bytes(problem, line_values(size_of(problem.dtype))) > kLineSharedBytes ||
      std::max(line_shared_bytes(problem, 1), order_shared_bytes(problem)) >
          device.shared_bytes - kOrderStaticBytes ||
      problem.entries * layout.outer_size < kMinBinValues) {
    return false;
  }
  if (problem.mode == Mode::kDeterministic && is_inexact(problem.dtype)) return true;
  return problem.entries >= 4 * problem.bins && layout.outer_size >= kMinLines;
}

inline bool takes_sorting(const Problem& problem, const Layout& layout) {
  if (problem.mode == Mode::kDeterministic && is_inexact(problem.dtype)) return true;
  if (problem.mode == Mode::kAccurate && is_half(problem.dtype)) return true;
  const auto row_bytes = layout.inner.size * static_cast<int64_t>(size_of(problem.dtype));
  const bool many =
      problem.entries >= kSortEntries || problem.entries >= kSortRepeats * problem.bins;
  return many && row_bytes >= kSortRowBytes &&
         row_bytes * layout.outer_size * problem.entries >= kSortSourceBytes;
}

// Whether bins that many entries hit would hold the others up.
inline bool may_queue_up(const Problem& problem, const Layout& layout) {
  const int64_t width = layout.inner.size;
  return width <= kMaxHotRow && layout.outer_size == 1 && problem.bins < UINT32_MAX &&
         problem.entries >= kHotSamples && problem.entries * width >= kMinHotValues;
}

inline Path choose_path(const Problem& problem, const Device& device) {
  const Layout layout = make_layout(problem);
  if (takes_lines(problem, layout, device)) return Path::kLines;
  if (takes_few_bins(problem, layout)) return Path::kBins;
  return takes_sorting(problem, layout) ? Path::kSorted : Path::kAtomic;
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
    const int copies = plan.outer_group == 1 ? kMaxBinCopies : kWarpLanes;
    while (plan.copies < copies && one * plan.copies * 2 <= most &&
           problem.bins * width * plan.copies * 2 <= plan.split_values) {
      plan.copies *= 2;
    }
    if (plan.outer_group == 1 && problem.index_stride == 1 &&
        reinterpret_cast<uintptr_t>(problem.index) % kPackBytes == 0 &&
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
  if (path == Path::kAtomic && may_queue_up(problem, plan.layout)) {
    const auto bytes = static_cast<int64_t>(accumulator_bytes(problem.dtype));
    plan.hot_bins = std::min<int64_t>(kMaxHotBins, kHotSharedBytes / (bytes * width * kHotCopies));
  }
  if (path == Path::kSorted) {
    plan.lanes = lanes_for(plan.units);
    plan.tiles = ceil_div<int64_t>(plan.units, plan.lanes);
    plan.group_entries = std::min(kShortSegment, 8 * plan.lanes);
    plan.entries = problem.entries;
    plan.warp_rows = int64_t{kGroupRows} * (kWarpLanes / plan.lanes);
    // So that the sums of parts take no more memory than 16 bytes an entry.
    plan.part_rows = std::max({int64_t{kGroupRows} * (kRowThreads / plan.lanes),
                               ceil_div<int64_t>(plan.entries, kMaxParts),
                               plan.layout.outer_size * plan.tiles * plan.lanes * plan.values});
  }
  return plan;
}

}  // namespace gpuopt::index_add
