// Plans a scan: from shape, strides, dtypes and alignment to a path, blocks and tiles. This is
// plain host C++, so tests run it without a GPU.
//
// A row is one run along the scanned dimension. A unit is one load of a thread: a vector of up to
// 16 bytes, or a single value. A tile is what a block holds at once.
//
// No choice depends on the number of SMs. So the order in which values combine, and with it every
// bit of the result, follows from the problem alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include "common/strided.h"
#include "scan/scan_tuning.h"

namespace gpuopt::scan {

// No tensor has more dimensions of size 2 or more, because it has less than 2^63 values.
constexpr int kMaxDims = 62;
constexpr int kMaxKernelDims = 6;  // dimensions of rows in one launch; more are split off

// A dimension. Strides are in elements.
struct Dim {
  int64_t size = 1;
  int64_t in_stride = 0;
  int64_t out_stride = 0;
  int64_t second_stride = 0;
  int64_t initial_stride = 0;  // unused in the scanned dimension

  static constexpr int kStrides = 4;
  int64_t stride(int k) const {
    return k == 0 ? in_stride : k == 1 ? out_stride : k == 2 ? second_stride : initial_stride;
  }
};

// Values are converted to `dtype` when they are loaded. `in` and `out` are the same memory with the
// same strides, or do not overlap. Operators of two inputs also read `second`, whose dtype is
// in_dtype, and `initial`, which has one value per row.
struct Problem {
  const void* in = nullptr;
  void* out = nullptr;
  const void* second = nullptr;   // nullptr if there is no second input
  const void* initial = nullptr;  // nullptr if there are no initial values
  DType in_dtype = DType::kFloat32;
  DType dtype = DType::kFloat32;
  bool reverse = false;    // from the last value to the first
  bool exclusive = false;  // a value's result is that of the values before it
  Dim scanned;
  int num_dims = 0;
  Dim dims[kMaxDims];  // the other dimensions, in any order, sizes positive
};

// Describes the kernels that a plan is for.
struct Kernels {
  int values = 1;                   // of a vector; 1 if the kernels read single values only
  int units = kSingleUnits;         // vectors in flight
  int single_units = kSingleUnits;  // single values in flight
  int inputs = 1;
  int rows = kColumnRows;  // of columns that a thread has in flight
};

enum class Path : uint8_t {
  kPacked,        // a warp scans one or several whole rows
  kRows,          // a block scans a row, tile by tile
  kSplitRows,     // every tile of a row has a block
  kColumns,       // threads run along another dimension; a block scans its columns, tile by tile
  kSplitColumns,  // every tile of the columns has a block
};

struct Plan {
  Path path = Path::kPacked;
  int values = 1;  // of a unit
  int units = kSingleUnits;

  // Dimensions other than the scanned one and the columns, innermost first.
  int num_outer = 0;
  Dim outer[kMaxDims];
  int64_t rows = 1;  // the product of their sizes

  // kPacked: rows lie behind each other, so a vector may hold parts of several.
  bool dense = false;
  // kRows, kSplitRows: vectors are aligned, but rows begin and end inside of vectors.
  bool shifted = false;
  // Along the dimension of a unit, the second input has stride 0.
  bool second_is_one = false;
  int64_t chunk_rows = 1;  // kPacked: rows of a warp

  int warps = 1;      // of a block
  int64_t tiles = 1;  // along the scanned dimension

  // Columns. A block is x units wide.
  Dim column;
  int x = 1;
  int64_t column_tiles = 1;  // blocks side by side

  int64_t blocks = 1;
  int threads() const { return 32 * warps; }
  bool is_split() const { return path == Path::kSplitRows || path == Path::kSplitColumns; }
  // Look-back has one chain of tiles for each row, or for each block width of columns.
  int64_t chains() const { return rows * column_tiles; }
  // Slots of a chain in the workspace: its tiles, runs and groups.
  int64_t slots() const {
    return tiles + ceil_div<int64_t>(tiles, kRun) + ceil_div<int64_t>(tiles, kGroup);
  }
};

namespace detail {

// Sorts the dimensions of the rows, innermost first, and merges them.
inline void merge_dims(const Problem& problem, bool by_out, Plan& plan) {
  std::copy_n(problem.dims, problem.num_dims, plan.outer);
  const auto order = [&](const Dim& dim) {
    return std::pair(memory_order(dim.stride(by_out)), dim.out_stride);
  };
  plan.num_outer =
      gpuopt::merge_dims(plan.outer, problem.num_dims,
                         [&](const Dim& a, const Dim& b) { return order(a) < order(b); });
}

// Whether units of `values` neighbouring values are aligned in both tensors, at every index of the
// dimensions of the rows. `line` is the dimension along which the units lie.
inline bool vecs_are_aligned(const Problem& problem, const Plan& plan, const Dim& line,
                             int values) {
  if (line.in_stride != 1 || line.out_stride != 1) return false;
  const size_t in = size_of(problem.in_dtype) * values, out = size_of(problem.dtype) * values;
  if (!is_aligned(problem.in, in) || !is_aligned(problem.out, out)) return false;
  for (int d = 0; d < plan.num_outer; ++d) {
    if (plan.outer[d].in_stride % values != 0 || plan.outer[d].out_stride % values != 0) {
      return false;
    }
  }
  if (problem.second == nullptr || line.second_stride == 0) return true;
  if (line.second_stride != 1 || !is_aligned(problem.second, in)) return false;
  for (int d = 0; d < plan.num_outer; ++d) {
    if (plan.outer[d].second_stride % values != 0) return false;
  }
  return true;
}

// Whether the rows of both tensors begin at the same offset in a vector, each row at its own.
inline bool rows_are_alike(const Problem& problem, const Plan& plan, int values) {
  const Dim& line = problem.scanned;
  if (line.in_stride != 1 || line.out_stride != 1) return false;
  const auto offset_of = [&](const void* data, DType dtype) {
    return reinterpret_cast<uintptr_t>(data) / size_of(dtype) % values;
  };
  const auto offset = offset_of(problem.out, problem.dtype);
  if (offset_of(problem.in, problem.in_dtype) != offset) return false;
  const bool second = problem.second != nullptr && line.second_stride != 0;
  if (second && (line.second_stride != 1 || offset_of(problem.second, problem.in_dtype) != offset))
    return false;
  for (int d = 0; d < plan.num_outer; ++d) {
    const Dim& dim = plan.outer[d];
    if ((dim.in_stride - dim.out_stride) % values != 0) return false;
    if (second && (dim.second_stride - dim.out_stride) % values != 0) return false;
  }
  return true;
}

inline bool starts_aligned(const Problem& problem, int values) {
  const size_t in = size_of(problem.in_dtype) * values;
  return is_aligned(problem.in, in) && is_aligned(problem.out, size_of(problem.dtype) * values) &&
         (problem.second == nullptr || problem.scanned.second_stride == 0 ||
          is_aligned(problem.second, in));
}

// Whether rows lie behind each other in the second input as they do in the first one, or all its
// values are one value.
inline bool second_is_dense(const Problem& problem, const Plan& plan) {
  const int64_t stride = problem.scanned.second_stride;
  if (problem.second == nullptr) return true;
  if (stride != 0 && stride != 1) return false;
  return plan.num_outer == 0 || plan.outer[0].second_stride == stride * problem.scanned.size;
}

inline void plan_packed(Plan& plan, int64_t length, int64_t chunk) {
  plan.path = Path::kPacked;
  // Chunks of a dense problem begin at whole vectors if these are not too many rows.
  const int64_t least = plan.values / std::gcd(length, int64_t{plan.values});
  plan.chunk_rows =
      length * least <= chunk ? chunk / length / least * least : (chunk - plan.values + 1) / length;
  const int64_t chunks = ceil_div(plan.rows, plan.chunk_rows);
  plan.warps = static_cast<int>(std::min<int64_t>(4, chunks));
  plan.blocks = ceil_div<int64_t>(chunks, plan.warps);
}

// The size of the tiles of a split scan, in multiples of the smallest one. `tiles` is their number
// at the smallest size.
inline int tile_times(int64_t tiles, const Tuning& tuning) {
  return static_cast<int>(
      std::clamp<int64_t>(tiles / tuning.many_tiles, 1, tuning.most_tile_times));
}

inline void plan_rows(Plan& plan, const Problem& problem, const Kernels& kernels,
                      const Tuning& tuning) {
  const int64_t length = problem.scanned.size;
  const Dim& line = problem.scanned;
  plan.second_is_one = line.second_stride == 0;
  plan.units = kernels.single_units;
  // Rows behind each other are aligned as a whole, whatever their length.
  const int64_t vec_chunk = 32 * kernels.units * kernels.values;
  const bool dense =
      line.in_stride == 1 && line.out_stride == 1 &&
      (plan.num_outer == 0 || (plan.num_outer == 1 && plan.outer[0].in_stride == length &&
                               plan.outer[0].out_stride == length)) &&
      second_is_dense(problem, plan);
  const bool any_chunk = length % kernels.values == 0 || length + kernels.values - 1 <= vec_chunk;
  if (kernels.values > 1 && dense && starts_aligned(problem, kernels.values) &&
      length <= vec_chunk && any_chunk) {
    plan.values = kernels.values;
    plan.units = kernels.units;
    plan.dense = true;
    return plan_packed(plan, length, vec_chunk);
  }
  if (kernels.values > 1 && length % kernels.values == 0 &&
      vecs_are_aligned(problem, plan, line, kernels.values)) {
    plan.values = kernels.values;
    plan.units = kernels.units;
  } else if (kernels.values > 1 && length > int64_t{32} * kernels.single_units &&
             rows_are_alike(problem, plan, kernels.values)) {
    plan.shifted = true;
    plan.values = kernels.values;
    plan.units = kernels.units;
  }
  const int64_t chunk = int64_t{32} * plan.units * plan.values;
  if (length <= chunk && !plan.shifted) return plan_packed(plan, length, chunk);
  const int64_t covered = length + (plan.shifted ? plan.values - 1 : 0);
  plan.tiles = ceil_div<int64_t>(covered, chunk * kMaxWarps);
  if (plan.tiles > tuning.unsplit_tiles && plan.rows < tuning.split_rows_below) {
    plan.path = Path::kSplitRows;
    plan.warps = kMaxWarps;
    const int times = tile_times(plan.rows * plan.tiles, tuning);
    plan.units *= times;
    plan.tiles = ceil_div<int64_t>(covered, chunk * times * kMaxWarps);
    plan.blocks = plan.rows * plan.tiles;
    return;
  }
  plan.path = Path::kRows;
  plan.warps = static_cast<int>(ceil_div(covered, chunk * plan.tiles));
  plan.blocks = plan.rows;
}

inline void plan_columns(Plan& plan, const Problem& problem, const Kernels& kernels,
                         const Tuning& tuning) {
  const bool whole_rows = problem.scanned.in_stride % kernels.values == 0 &&
                          problem.scanned.out_stride % kernels.values == 0;
  const bool whole_second =
      plan.column.second_stride == 0 || problem.scanned.second_stride % kernels.values == 0;
  plan.second_is_one = plan.column.second_stride == 0;
  if (kernels.values > 1 && plan.column.size % kernels.values == 0 && whole_rows && whole_second &&
      vecs_are_aligned(problem, plan, plan.column, kernels.values)) {
    plan.values = kernels.values;
  }
  const int64_t width = ceil_div<int64_t>(plan.column.size, plan.values);
  plan.x = static_cast<int>(std::min<int64_t>(pow2_ceil(width), kWarp));
  const auto column_blocks = [&] { return plan.rows * ceil_div<int64_t>(width, plan.x); };
  const int narrow = std::min(tuning.narrow, tuning.narrow_values / plan.values);
  while (plan.x > narrow && column_blocks() < tuning.wide_blocks) plan.x /= 2;
  plan.column_tiles = ceil_div<int64_t>(width, plan.x);
  const int64_t high = kWarp / plan.x, length = problem.scanned.size;
  plan.blocks = column_blocks();
  const auto use_units = [&](int units) {
    plan.units = units;
    plan.tiles = ceil_div(length, high * units * kMaxWarps);
  };
  use_units(kernels.rows);
  if (plan.tiles > tuning.unsplit_tiles && plan.blocks < tuning.split_columns_below) {
    plan.path = Path::kSplitColumns;
    plan.warps = kMaxWarps;
    use_units(kernels.rows / 2 * tile_times(2 * plan.blocks * plan.tiles, tuning));
    plan.blocks *= plan.tiles;
    return;
  }
  plan.path = Path::kColumns;
  plan.warps = static_cast<int>(ceil_div(length, high * plan.units * plan.tiles));
}

}  // namespace detail

inline Plan make_plan(const Problem& problem, const Kernels& kernels,
                      const Tuning& tuning = Tuning()) {
  Plan plan;
  // If all scanned values are one value in memory, only the result has an order.
  const bool by_out = problem.scanned.in_stride == 0;
  detail::merge_dims(problem, by_out, plan);
  const bool columns =
      plan.num_outer > 0 && problem.scanned.size > 1 &&
      memory_order(plan.outer[0].stride(by_out)) < memory_order(problem.scanned.stride(by_out));
  if (columns) {
    plan.column = plan.outer[0];
    --plan.num_outer;
    std::copy(plan.outer + 1, plan.outer + 1 + plan.num_outer, plan.outer);
  }
  for (int d = 0; d < plan.num_outer; ++d) plan.rows *= plan.outer[d].size;
  if (columns) {
    detail::plan_columns(plan, problem, kernels, tuning);
  } else {
    detail::plan_rows(plan, problem, kernels, tuning);
  }
  return plan;
}

// Whether clusters of blocks should scan the rows of a plan, on devices that have clusters. Bits
// don't depend on it.
inline bool fits_clusters(const Plan& plan) {
  return plan.path == Path::kSplitRows && plan.tiles <= kClusterTiles &&
         plan.blocks <= kClusterBlocks;
}

// Whether one launch can't run a plan, because it has too many rows, columns, blocks or dimensions.
inline bool is_too_large(const Plan& plan, int64_t limit = kMaxIndex32) {
  return plan.rows > limit || plan.blocks > limit || plan.column_tiles * plan.x > limit ||
         plan.num_outer > kMaxKernelDims;
}

// Splits a problem that is too large into two with separate results.
inline void halve(const Problem& problem, Problem& first, Problem& second) {
  Plan merged;
  detail::merge_dims(problem, problem.scanned.in_stride == 0, merged);
  const int chosen = dim_to_halve(merged.outer, merged.num_outer, merged.num_outer > kMaxKernelDims,
                                  [](const Dim&) { return true; });
  first = problem;
  first.num_dims = merged.num_outer;
  std::copy_n(merged.outer, merged.num_outer, first.dims);
  second = first;
  const Dim& dim = merged.outer[chosen];
  const int64_t half = half_of(dim.size);
  first.dims[chosen].size = half;
  second.dims[chosen].size = dim.size - half;
  second.in = moved(problem.in, half * dim.in_stride, problem.in_dtype);
  second.out = moved(problem.out, half * dim.out_stride, problem.dtype);
  second.second = moved(problem.second, half * dim.second_stride, problem.in_dtype);
  second.initial = moved(problem.initial, half * dim.initial_stride, problem.in_dtype);
}

}  // namespace gpuopt::scan
