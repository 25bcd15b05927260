// Chooses the path of a scan, its blocks and tiles, from shape, strides, dtypes and alignment.
// Plain host C++.
//
// A row is one run along the scanned dimension. A unit is one load of a thread: a vector of up to
// 16 bytes, or a single value. A tile is what a block holds at once.
//
// No choice depends on the number of SMs. So the order in which values combine, and with it every
// bit of the result, follows from the problem alone.
#pragma once

#include <numeric>

#include "scan/scan_kernels.h"
#include "scan/scan_problem.h"
#include "scan/scan_tiles.h"
#include "scan/scan_tuning.h"

namespace gpuopt::scan {

enum class Path : uint8_t {
  kPacked,        // a warp scans one or several whole rows
  kRows,          // a block scans a row, tile by tile
  kSplitRows,     // every tile of a row has a block
  kColumns,       // threads run along another dimension; a block scans its columns, tile by tile
  kSplitColumns,  // every tile of the columns has a block
  kAlone,         // a thread scans a row
};

namespace detail {

// What is chosen for a problem. Rows and blocks may be too many for one launch.
struct Layout {
  Path path = Path::kPacked;
  int values = 1;  // of a unit
  int units = kSingleUnits;

  // Dimensions other than the scanned one and the columns, innermost first.
  int num_outer = 0;
  Dim outer[kMaxDims];
  int64_t rows = 1;  // the product of their sizes

  bool dense = false;
  bool shifted = false;
  bool skewed = false;  // the rows of an input are not aligned as their results are
  bool second_is_one = false;
  int64_t chunk_rows = 1;

  int warps = 1;  // of a block
  int64_t tiles = 1;

  Dim column, second_column;
  bool shared_tiles = false;  // a block copies tiles of columns together (scan_tiles.h)
  int x = 1, widths[2] = {1, 1};
  int64_t column_tiles = 1, first_tiles = 1;

  int64_t blocks = 1;

  // Slots of a chain of look-back: its tiles, runs and groups.
  int64_t slots() const {
    return tiles + ceil_div<int64_t>(tiles, kRun) + ceil_div<int64_t>(tiles, kGroup);
  }
};

// Whether test(k) holds for each tensor k whose values differ along a dimension. Strides of Dim
// have the same order: in, out, second.
template <typename Test>
bool all_tensors(const Problem& problem, const Dim& line, const Test& test) {
  const bool second = problem.second != nullptr && line.second_stride != 0;
  return test(0) && test(1) && (!second || test(2));
}

inline bool starts_aligned(const Problem& problem, const Dim& line, int values) {
  return all_tensors(problem, line,
                     [&](int k) { return is_aligned(problem.data(k), problem.item(k) * values); });
}

// Whether units of `values` neighbouring values are aligned in all tensors, at every index of the
// dimensions of the rows. `line` is the dimension along which the units lie.
inline bool vecs_are_aligned(const Problem& problem, const Layout& layout, const Dim& line,
                             int values) {
  const auto steps_whole = [&](int k) {
    return line.stride(k) == 1 &&
           std::all_of(layout.outer, layout.outer + layout.num_outer,
                       [&](const Dim& dim) { return dim.stride(k) % values == 0; });
  };
  return starts_aligned(problem, line, values) && all_tensors(problem, line, steps_whole);
}

// Whether the values of a row are neighbours in all tensors.
inline bool rows_are_in_order(const Problem& problem) {
  return all_tensors(problem, problem.scanned,
                     [&](int k) { return problem.scanned.stride(k) == 1; });
}

// Whether the rows of all tensors begin at the same offset in a vector, each row at its own.
inline bool rows_are_alike(const Problem& problem, const Layout& layout, int values) {
  const auto offset = [&](int k) {
    return reinterpret_cast<uintptr_t>(problem.data(k)) / problem.item(k) % values;
  };
  return all_tensors(problem, problem.scanned, [&](int k) {
    return offset(k) == offset(1) &&
           std::all_of(layout.outer, layout.outer + layout.num_outer, [&](const Dim& dim) {
             return (dim.stride(k) - dim.out_stride) % values == 0;
           });
  });
}

// Whether rows lie behind each other in the second input as they do in the first one, or all its
// values are one value.
inline bool second_is_dense(const Problem& problem, const Layout& layout) {
  const int64_t stride = problem.scanned.second_stride;
  if (problem.second == nullptr) return true;
  if (stride != 0 && stride != 1) return false;
  return layout.num_outer == 0 || layout.outer[0].second_stride == stride * problem.scanned.size;
}

inline void plan_packed(Layout& layout, int64_t length, int64_t chunk) {
  layout.path = Path::kPacked;
  // Chunks of a dense problem begin at whole vectors if these are not too many rows.
  const int64_t least = layout.values / std::gcd(length, int64_t{layout.values});
  layout.chunk_rows = length * least <= chunk ? chunk / length / least * least
                                              : (chunk - layout.values + 1) / length;
  const int64_t chunks = ceil_div(layout.rows, layout.chunk_rows);
  layout.warps = static_cast<int>(std::min<int64_t>(4, chunks));
  layout.blocks = ceil_div<int64_t>(chunks, layout.warps);
}

// The size of the tiles of a split scan, in multiples of the smallest one. `tiles` is their number
// at the smallest size.
inline int tile_times(int64_t tiles, const Tuning& tuning) {
  return static_cast<int>(
      std::clamp<int64_t>(tiles / tuning.many_tiles, 1, tuning.most_tile_times));
}

inline void plan_rows(Layout& layout, const Problem& problem, const Kernels& kernels,
                      const Tuning& tuning) {
  const int64_t length = problem.scanned.size;
  const Dim& line = problem.scanned;
  layout.second_is_one = line.second_stride == 0;
  layout.units = kernels.single_units;
  const bool in_order = rows_are_in_order(problem);
  const bool alike = in_order && rows_are_alike(problem, layout, kernels.values);
  const bool may_split = layout.rows < tuning.split_rows_below;
  const bool skewed = in_order && !alike && length >= kShortRow && !may_split;
  // Rows behind each other are aligned as a whole, whatever their length.
  const int64_t vec_chunk = 32 * kernels.units * kernels.values;
  const bool dense =
      line.in_stride == 1 && line.out_stride == 1 &&
      (layout.num_outer == 0 || (layout.num_outer == 1 && layout.outer[0].in_stride == length &&
                                 layout.outer[0].out_stride == length)) &&
      second_is_dense(problem, layout);
  const bool any_chunk = length % kernels.values == 0 || length + kernels.values - 1 <= vec_chunk;
  if (kernels.values > 1 && dense && starts_aligned(problem, line, kernels.values) &&
      length <= vec_chunk && any_chunk) {
    layout.values = kernels.values;
    layout.units = kernels.units;
    layout.dense = true;
    return plan_packed(layout, length, vec_chunk);
  }
  if (kernels.values > 1 && length % kernels.values == 0 &&
      vecs_are_aligned(problem, layout, line, kernels.values)) {
    layout.values = kernels.values;
    layout.units = kernels.units;
  } else if (kernels.values > 1 && length > int64_t{32} * kernels.single_units &&
             (alike || skewed)) {
    layout.shifted = true;
    layout.skewed = skewed;
    layout.values = kernels.values;
    layout.units = kernels.units;
  }
  const int64_t chunk = int64_t{32} * layout.units * layout.values;
  if (length <= chunk && !layout.shifted) return plan_packed(layout, length, chunk);
  const int64_t covered = length + (layout.shifted ? layout.values - 1 : 0);
  layout.tiles = ceil_div<int64_t>(covered, chunk * kMaxWarps);
  if (layout.tiles > 1 && may_split) {
    layout.path = Path::kSplitRows;
    layout.warps = kMaxWarps;
    const int times = tile_times(layout.rows * layout.tiles, tuning);
    layout.units *= times;
    layout.tiles = ceil_div<int64_t>(covered, chunk * times * kMaxWarps);
    layout.blocks = layout.rows * layout.tiles;
    return;
  }
  layout.path = Path::kRows;
  layout.warps = static_cast<int>(ceil_div(covered, chunk * layout.tiles));
  layout.blocks = layout.rows;
}

// Shares the rows of columns out among tiles. `units`: rows of a thread; `split_units`: if every
// tile has a block, for a number of tiles.
template <typename SplitUnits>
void plan_column_tiles(Layout& layout, int64_t length, int units, const SplitUnits& split_units,
                       const Tuning& tuning) {
  layout.blocks = layout.rows * layout.column_tiles;
  const int64_t high = kThreads / layout.x;
  const auto use_units = [&](int64_t count) {
    layout.units = static_cast<int>(count);
    layout.tiles = ceil_div(length, high * layout.units);
  };
  use_units(units);
  if (layout.tiles > 1 && layout.blocks < tuning.split_columns_below) {
    layout.path = Path::kSplitColumns;
    layout.warps = kMaxWarps;
    use_units(split_units(layout.blocks * layout.tiles));
    layout.blocks *= layout.tiles;
    return;
  }
  layout.path = Path::kColumns;
  const int64_t rows = ceil_div<int64_t>(length, layout.units * layout.tiles);
  layout.warps = static_cast<int>(ceil_div<int64_t>(rows * layout.x, kWarp));
}

// Each thread copies units of its own.
inline void plan_unit_columns(Layout& layout, const Problem& problem, const Kernels& kernels,
                              const Tuning& tuning) {
  const int64_t width = ceil_div<int64_t>(layout.column.size, layout.values);
  const int64_t length = problem.scanned.size;
  const int most_rows = kColumnRows / kernels.inputs;
  // Threads that have whole columns need no others, so all warps of a block may lie side by side.
  // Stages load four rows at once.
  const bool is_whole = length <= most_rows;
  const int rows = is_whole ? static_cast<int>(ceil_div<int64_t>(length, 4) * 4) : most_rows;
  layout.x = static_cast<int>(std::min<int64_t>(pow2_ceil(width), is_whole ? kThreads : kWarp));
  const auto column_blocks = [&] { return layout.rows * ceil_div<int64_t>(width, layout.x); };
  const int narrow = layout.values > 1 ? tuning.narrow_values / 2 : tuning.narrow_values;
  while (layout.x > narrow && column_blocks() < tuning.wide_blocks) layout.x /= 2;
  layout.column_tiles = ceil_div<int64_t>(width, layout.x);
  plan_column_tiles(
      layout, length, rows, [&](int64_t tiles) { return rows / 2 * tile_times(2 * tiles, tuning); },
      tuning);
}

// Units are single values, and a block copies tiles together. A tile is wide enough along the
// columns for whole sectors, unless few columns lie across memory, and wider if its columns are
// short.
inline void plan_shared_columns(Layout& layout, const Problem& problem, const Kernels& kernels,
                                const Tuning& tuning) {
  layout.shared_tiles = true;
  const int64_t length = problem.scanned.size;
  const int64_t bytes = std::max<int64_t>(kernels.value_bytes * kernels.inputs, problem.item(1));
  // Rows of a thread are no more than needed, in vectors. Threads have whole columns if these are
  // short.
  const int64_t needed = ceil_div<int64_t>(length, 16) * 16;
  // Few columns are shared among more threads.
  const int64_t columns = layout.rows * layout.column.size * layout.second_column.size;
  const bool few = columns < tuning.wide_blocks * kWarp && length > kWarp;
  const bool is_whole = layout.second_column.size == 1 && needed * bytes <= kWholeBytes && !few;
  const int64_t some = std::min<int64_t>(kTileBytes / bytes, few ? kFewColumnsRows : kTileBytes);
  const auto units = static_cast<int>(is_whole ? needed : std::min(needed, some));
  if (layout.second_column.size > 1) {
    // Both sides of a tile are a sector at least.
    layout.widths[0] = layout.widths[1] = kernels.value_bytes <= 4 ? kTileSide : kTileSide / 2;
  } else {
    const int64_t high = pow2_ceil(std::min<int64_t>(ceil_div<int64_t>(length, units), kThreads));
    const bool across = all_tensors(problem, problem.scanned,
                                    [&](int k) { return problem.scanned.stride(k) == 1; });
    // A block has a warp at least.
    const int64_t least = few && across
                              ? std::max<int64_t>(kWarp / high, kLeastColumns)
                              : std::max(kTileRowBytes / kernels.value_bytes, kLeastColumns);
    int64_t& width = layout.column_tiles;
    width =
        std::min<int64_t>(std::max<int64_t>(kThreads / high, least), pow2_ceil(layout.column.size));
    const auto blocks = [&] { return layout.rows * ceil_div(layout.column.size, width); };
    while (width > least && blocks() < tuning.wide_blocks) width /= 2;
    layout.widths[0] = static_cast<int>(width);
  }
  layout.x = layout.widths[0] * layout.widths[1];
  layout.first_tiles = ceil_div<int64_t>(layout.column.size, layout.widths[0]);
  layout.column_tiles =
      layout.first_tiles * ceil_div<int64_t>(layout.second_column.size, layout.widths[1]);
  plan_column_tiles(
      layout, length, units,
      [&](int64_t tiles) { return units * std::min(2, tile_times(tiles, tuning)); }, tuning);
}

// Whether there are enough columns for threads that scan them alone. `inner`: columns are innermost
// in the input and in the result.
inline bool fit_alone(const Layout& layout, const Problem& problem, bool inner,
                      const Tuning& tuning) {
  const int64_t least = tuning.alone_columns * std::min(problem.scanned.size, tuning.alone_rows);
  return inner && layout.rows * layout.column.size >= least;
}

// The columns are the innermost dimension of the rows.
inline void plan_alone(Layout& layout, int64_t length) {
  std::copy_backward(layout.outer, layout.outer + layout.num_outer,
                     layout.outer + layout.num_outer + 1);
  layout.outer[0] = layout.column;
  ++layout.num_outer;
  layout.rows *= layout.column.size;
  layout.column = {};
  layout.path = Path::kAlone;
  layout.units = length <= kFewAlone ? kAloneUnits : kMostAloneUnits;
  layout.warps = kMaxWarps;
  layout.blocks = ceil_div<int64_t>(layout.rows, kThreads);
}

inline void plan_columns(Layout& layout, const Problem& problem, const Kernels& kernels, bool inner,
                         const Tuning& tuning) {
  layout.second_is_one = layout.column.second_stride == 0;
  const bool whole_rows = all_tensors(problem, layout.column, [&](int k) {
    return problem.scanned.stride(k) % kernels.values == 0;
  });
  if (kernels.values > 1 && layout.column.size % kernels.values == 0 && whole_rows &&
      layout.second_column.size == 1 &&
      vecs_are_aligned(problem, layout, layout.column, kernels.values)) {
    layout.values = kernels.values;
    return plan_unit_columns(layout, problem, kernels, tuning);
  }
  if (fit_alone(layout, problem, inner, tuning)) return plan_alone(layout, problem.scanned.size);
  if (inner) return plan_unit_columns(layout, problem, kernels, tuning);
  plan_shared_columns(layout, problem, kernels, tuning);
}

// Takes a dimension out of the outer ones.
inline Dim take_outer(Layout& layout, int index) {
  const Dim dim = layout.outer[index];
  std::copy(layout.outer + index + 1, layout.outer + layout.num_outer, layout.outer + index);
  --layout.num_outer;
  return dim;
}

// The dimension along which results lie closest, if these are closer than along the scanned one
// and enough for a tile. Otherwise -1.
inline int closest_in_result(const Layout& layout, const Problem& problem) {
  int closest = -1;
  int64_t stride = problem.scanned.size > 1 ? memory_order(problem.scanned.out_stride) : INT64_MAX;
  for (int d = 0; d < layout.num_outer; ++d) {
    const int64_t own = memory_order(layout.outer[d].out_stride);
    if (own < stride) closest = d, stride = own;
  }
  return closest >= 0 && layout.outer[closest].size >= kLeastColumns ? closest : -1;
}

inline Layout make_layout(const Problem& problem, const Kernels& kernels, const Tuning& tuning) {
  Layout layout;
  layout.num_outer = merge_dims(problem, layout.outer);
  const bool by_out = problem.is_ordered_by_out();
  const int closest = by_out ? -1 : closest_in_result(layout, problem);
  const bool inner_columns =
      layout.num_outer > 0 &&
      (problem.scanned.size == 1 ||
       memory_order(layout.outer[0].stride(by_out)) < memory_order(problem.scanned.stride(by_out)));
  const bool is_wide = layout.num_outer > 0 && layout.outer[0].size >= kLeastColumns;
  // Rows of one value are columns only if a result lies in another order than its input.
  const bool is_moved = closest > 0 || (closest == 0 && !inner_columns);
  bool columns = problem.scanned.size > 1 ? inner_columns || is_moved : is_moved && is_wide;
  if (!columns && is_wide && kernels.is_own && kernels.inputs == 1 && problem.scanned.size > 1) {
    // Short rows that no vectors fit are columns that lie across memory.
    Layout by_rows = layout;
    for (int d = 0; d < layout.num_outer; ++d) by_rows.rows *= layout.outer[d].size;
    plan_rows(by_rows, problem, kernels, tuning);
    const int64_t length = problem.scanned.size;
    const bool is_short = by_rows.path == Path::kPacked ||
                          (length < kShortRow && by_rows.rows * length >= kManyShortValues &&
                           rows_are_in_order(problem));
    columns = is_short && by_rows.values == 1 && kernels.values > 1;
  }
  if (columns && is_moved && inner_columns && is_wide) {
    layout.second_column = take_outer(layout, closest);
    layout.column = take_outer(layout, 0);
  } else if (columns) {
    layout.column = take_outer(layout, inner_columns ? 0 : std::max(closest, 0));
  }
  for (int d = 0; d < layout.num_outer; ++d) layout.rows *= layout.outer[d].size;
  if (columns) {
    const bool inner_in_result =
        memory_order(layout.column.out_stride) < memory_order(problem.scanned.out_stride);
    plan_columns(layout, problem, kernels, inner_columns && inner_in_result && !is_moved, tuning);
  } else {
    plan_rows(layout, problem, kernels, tuning);
  }
  return layout;
}

inline bool is_too_large(const Layout& layout, int64_t limit) {
  return layout.rows > limit || layout.blocks > limit || layout.column_tiles * layout.x > limit ||
         layout.num_outer > kMaxKernelDims;
}

}  // namespace detail
}  // namespace gpuopt::scan
