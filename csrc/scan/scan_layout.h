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

#include "scan/scan_problem.h"
#include "scan/scan_tuning.h"

namespace gpuopt::scan {

// What depends on the types of a kernel. Sums of a pair of dtypes without kernels of their own read
// one value at a time through a switch over the dtype (AnyType).
struct Kernels {
  int inputs = 1;
  int values = 1;        // of a vector; 1 if the kernels read single values only
  int units = 1;         // vectors in flight, for each input
  int single_units = 1;  // single values in flight, for each input
  int value_bytes = 1;   // of a value of one input in shared memory
  int records = 1;       // of look-back, for one result
};

constexpr Kernels kernels_of(bool own, size_t in_bytes, size_t bytes, Category category,
                             int inputs) {
  Kernels kernels;
  kernels.inputs = inputs;
  if (own) kernels.values = kAccessBytes / static_cast<int>(std::max(in_bytes, bytes));
  kernels.single_units = (own && bytes == kAccessBytes ? kVecUnits : kSingleUnits) / inputs;
  kernels.units = kernels.values > 1 ? kVecUnits / inputs : kernels.single_units;
  // Values of any dtype are converted before: integers to int64, fp16 and bf16 to f32.
  const size_t converted = category <= Category::kInteger ? 8 : std::max<size_t>(bytes, 4);
  kernels.value_bytes = static_cast<int>(own ? in_bytes : converted);
  // Results between tiles are int64 or f64. A record holds 8 bytes.
  kernels.records = inputs * (category == Category::kComplex ? 2 : 1);
  return kernels;
}

constexpr bool has_own_sum(DType in, DType dtype) {
  switch (dtype) {
    case DType::kInt64:
      return in == dtype || in == DType::kBool || in == DType::kUInt8 || in == DType::kInt32;
    case DType::kFloat32:
      return in == dtype || in == DType::kFloat16 || in == DType::kBFloat16;
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kFloat64:
    case DType::kComplex64:
      return in == dtype;
    default:
      return false;
  }
}

inline Kernels kernels_of(const Problem& problem) {
  const int inputs = problem.second != nullptr ? 2 : 1;
  const bool own = inputs == 2 || has_own_sum(problem.in_dtype, problem.dtype);
  return kernels_of(own, size_of(problem.in_dtype), size_of(problem.dtype),
                    category_of(problem.dtype), inputs);
}

enum class Path : uint8_t {
  kPacked,        // a warp scans one or several whole rows
  kRows,          // a block scans a row, tile by tile
  kSplitRows,     // every tile of a row has a block
  kColumns,       // threads run along another dimension; a block scans its columns, tile by tile
  kSplitColumns,  // every tile of the columns has a block
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
  bool second_is_one = false;
  int64_t chunk_rows = 1;

  int warps = 1;  // of a block
  int64_t tiles = 1;

  Dim column;
  int x = 1;
  int64_t column_tiles = 1;

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

// Whether the rows of all tensors begin at the same offset in a vector, each row at its own.
inline bool rows_are_alike(const Problem& problem, const Layout& layout, int values) {
  const auto offset = [&](int k) {
    return reinterpret_cast<uintptr_t>(problem.data(k)) / problem.item(k) % values;
  };
  return all_tensors(problem, problem.scanned, [&](int k) {
    return problem.scanned.stride(k) == 1 && offset(k) == offset(1) &&
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
             rows_are_alike(problem, layout, kernels.values)) {
    layout.shifted = true;
    layout.values = kernels.values;
    layout.units = kernels.units;
  }
  const int64_t chunk = int64_t{32} * layout.units * layout.values;
  if (length <= chunk && !layout.shifted) return plan_packed(layout, length, chunk);
  const int64_t covered = length + (layout.shifted ? layout.values - 1 : 0);
  layout.tiles = ceil_div<int64_t>(covered, chunk * kMaxWarps);
  if (layout.tiles > tuning.unsplit_tiles && layout.rows < tuning.split_rows_below) {
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

inline void plan_columns(Layout& layout, const Problem& problem, const Kernels& kernels,
                         const Tuning& tuning) {
  layout.second_is_one = layout.column.second_stride == 0;
  const bool whole_rows = all_tensors(problem, layout.column, [&](int k) {
    return problem.scanned.stride(k) % kernels.values == 0;
  });
  if (kernels.values > 1 && layout.column.size % kernels.values == 0 && whole_rows &&
      vecs_are_aligned(problem, layout, layout.column, kernels.values)) {
    layout.values = kernels.values;
  }
  const int64_t width = ceil_div<int64_t>(layout.column.size, layout.values);
  layout.x = static_cast<int>(std::min<int64_t>(pow2_ceil(width), kWarp));
  const auto column_blocks = [&] { return layout.rows * ceil_div<int64_t>(width, layout.x); };
  const int narrow = std::min(tuning.narrow, tuning.narrow_values / layout.values);
  while (layout.x > narrow && column_blocks() < tuning.wide_blocks) layout.x /= 2;
  layout.column_tiles = ceil_div<int64_t>(width, layout.x);
  const int64_t high = kWarp / layout.x, length = problem.scanned.size;
  layout.blocks = column_blocks();
  const auto use_units = [&](int units) {
    layout.units = units;
    layout.tiles = ceil_div(length, high * units * kMaxWarps);
  };
  const int rows = kColumnRows / kernels.inputs;
  use_units(rows);
  if (layout.tiles > tuning.unsplit_tiles && layout.blocks < tuning.split_columns_below) {
    layout.path = Path::kSplitColumns;
    layout.warps = kMaxWarps;
    use_units(rows / 2 * tile_times(2 * layout.blocks * layout.tiles, tuning));
    layout.blocks *= layout.tiles;
    return;
  }
  layout.path = Path::kColumns;
  layout.warps = static_cast<int>(ceil_div(length, high * layout.units * layout.tiles));
}

inline Layout make_layout(const Problem& problem, const Kernels& kernels, const Tuning& tuning) {
  Layout layout;
  layout.num_outer = merge_dims(problem, layout.outer);
  const bool by_out = problem.is_ordered_by_out();
  const bool columns =
      layout.num_outer > 0 && problem.scanned.size > 1 &&
      memory_order(layout.outer[0].stride(by_out)) < memory_order(problem.scanned.stride(by_out));
  if (columns) {
    layout.column = layout.outer[0];
    --layout.num_outer;
    std::copy(layout.outer + 1, layout.outer + 1 + layout.num_outer, layout.outer);
  }
  for (int d = 0; d < layout.num_outer; ++d) layout.rows *= layout.outer[d].size;
  if (columns) {
    plan_columns(layout, problem, kernels, tuning);
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
