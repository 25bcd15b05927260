// Plans a reduction: from shape, strides, dtypes and alignment to a path, blocks, threads and
// splits. This is plain host C++, so tests run it without a GPU.
//
// An output is one value of the result. A unit is one load of a thread: a vector of 16 bytes, or a
// single value. The units of an output may be split over several blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include "common/device.h"
#include "common/strided.h"
#include "reduce/reduce_tuning.h"

namespace gpuopt::reduce {

// No tensor has more dimensions of size 2 or more, because it has less than 2^63 values.
constexpr int kMaxDims = 62;
// One launch walks at most so many kept and so many reduced dimensions. Problems with more are
// split into several launches.
constexpr int kMaxKernelDims = 6;

// A dimension of the input. Strides are in elements. A reduced dimension has out_stride 0.
struct Dim {
  int64_t size = 1;
  int64_t in_stride = 0;
  int64_t out_stride = 0;
  bool reduced = false;

  static constexpr int kStrides = 2;
  int64_t stride(int k) const { return k == 0 ? in_stride : out_stride; }
};

// Each value is converted to `dtype` when it is loaded. Values are combined in a type that is at
// least as wide, and results are stored as `dtype`.
struct Problem {
  const void* in = nullptr;
  void* out = nullptr;
  DType in_dtype = DType::kFloat32;
  DType dtype = DType::kFloat32;
  int num_dims = 0;
  Dim dims[kMaxDims];  // any order, sizes positive
};

// Describes the kernels that a plan is for.
struct Kernels {
  // Whether the kernels are compiled for the stored type. If not, they read one value at a time,
  // through a switch over the type.
  bool native = true;
  size_t accumulator_bytes = 0;
  int values_in_flight = kValueUnroll;
};

enum class Path : uint8_t {
  // The innermost dimension is reduced, and threads run along it.
  kRows,
  // As kRows, if a block reads one aligned row or a split of one.
  kLine,
  // Aligned rows of at most Tuning::short_row_vecs vectors. Each thread reads several rows.
  kShortRows,
  // A vector holds several rows.
  kRowsInVecs,
  // Other short rows without gaps between them. A block copies its rows to shared memory as one
  // piece.
  kTile,
  // The innermost dimension is kept, and each thread keeps the columns of one vector.
  kColumns,
};

struct Plan {
  Path path = Path::kRows;
  bool vecs = false;       // units are vectors of 16 bytes; if not, single values
  bool unaligned = false;  // vectors, or rows of vectors, may begin at any address
  bool read_once = false;  // loads are streaming: their data leaves the caches first

  // The kept dimensions, innermost first. On path kColumns, threads run along kept[0].
  int num_kept = 0;
  Dim kept[kMaxDims];
  int64_t outputs = 1;
  bool linear_out = false;  // output i lies at out + i

  // The reduced dimensions, innermost first. There are inner_units units along reduced[0] and
  // outer_units positions along the other reduced dimensions.
  int num_reduced = 0;
  Dim reduced[kMaxDims];
  int64_t outer_units = 1;
  int64_t inner_units = 1;
  int64_t units() const { return outer_units * inner_units; }

  // A block has x * y * z threads: x along the columns, y along the units of an output, z along the
  // outputs (on path kColumns: along rows of outputs).
  int x = 1, y = 1, z = 1;
  int threads() const { return x * y * z; }
  int64_t column_vecs = 1;   // kColumns: vectors (or single columns) in a row
  int64_t column_tiles = 1;  // kColumns: blocks side by side along a row
  // kColumns: so many rows of columns are read as one row of whole vectors (README.md draws it).
  int fold = 1;
  bool packed_out = false;  // neighbouring outputs of a thread are an aligned vector in memory
  int rows_per_lane = 1;    // kTile: rows that a thread reads
  int64_t tiles = 1;        // blocks that cover the outputs

  // The units of an output are dealt to `splits` blocks. They write partial results to a workspace,
  // and a second launch combines them.
  int splits = 1;

  int64_t blocks() const { return tiles * splits; }
  size_t shared_bytes = 0;
};

namespace detail {

struct Merged {
  int count = 0;
  Dim dims[kMaxDims];
};

// Sorts the dimensions by stride, drops dimensions of size 1, and merges neighbours.
inline Merged merge_dims(const Problem& problem) {
  Merged merged;
  std::copy_n(problem.dims, problem.num_dims, merged.dims);
  // Of two dimensions with equal strides, the one with the larger output stride is the outer one.
  const auto is_inner = [](const Dim& a, const Dim& b) {
    return std::pair(memory_order(a.in_stride), a.out_stride) <
           std::pair(memory_order(b.in_stride), b.out_stride);
  };
  merged.count =
      gpuopt::merge_dims(merged.dims, problem.num_dims, is_inner,
                         [](const Dim& a, const Dim& b) { return a.reduced == b.reduced; });
  return merged;
}

inline int count_of(const Merged& merged, bool reduced) {
  int count = 0;
  for (int d = 0; d < merged.count; ++d) count += merged.dims[d].reduced == reduced;
  return count;
}

inline bool starts_aligned(const Problem& problem) { return is_aligned(problem.in, kAccessBytes); }

// Whether the innermost dimension can be read in vectors of several values. (A value of 16 bytes is
// a vector already.)
inline bool vecs_are_possible(const Merged& merged, const Kernels& kernels, int values) {
  return kernels.native && values > 1 && merged.count > 0 && merged.dims[0].in_stride == 1;
}

// Whether vectors are aligned at every index of the dimensions from `skip` on.
inline bool vecs_are_aligned(const Problem& problem, const Merged& merged, int values, int skip) {
  if (!starts_aligned(problem)) return false;
  for (int d = skip; d < merged.count; ++d) {
    if (merged.dims[d].in_stride % values != 0) return false;
  }
  return true;
}

// Whether each run of `values` neighbouring outputs is an aligned vector in memory.
inline bool has_packed_out(const Problem& problem, const Plan& plan, int values) {
  const size_t bytes = std::min<size_t>(kAccessBytes, size_of(problem.dtype) * values);
  if (!is_aligned(problem.out, bytes)) return false;
  if (plan.kept[0].out_stride != 1) return false;
  for (int d = 1; d < plan.num_kept; ++d) {
    if (plan.kept[d].out_stride % values != 0) return false;
  }
  return true;
}

inline int units_in_flight(const Plan& plan, const Kernels& kernels) {
  return plan.vecs ? kVecUnroll : kernels.values_in_flight;
}

// Splits each output over as many blocks as it takes to fill the device.
inline void split(Plan& plan, const Device& device, const Tuning& tuning, int unroll,
                  int blocks_per_sm) {
  const int64_t wanted = int64_t{device.sms} * blocks_per_sm;
  const int64_t groups = ceil_div<int64_t>(plan.units(), int64_t{plan.y} * unroll);
  if (groups <= tuning.unsplit_groups) return;
  const int64_t most = std::min(wanted / plan.tiles, groups);
  if (most > 1) plan.splits = static_cast<int>(ceil_div(groups, ceil_div(groups, most)));
}

// Whether an input of this size is read faster with streaming loads.
inline bool reads_once(const Plan& plan, const Tuning& tuning, size_t item) {
  const int64_t bytes =
      plan.outputs * plan.outer_units * plan.reduced[0].size * static_cast<int64_t>(item);
  return bytes >= tuning.once_from && bytes < tuning.once_below;
}

inline void plan_rows(Plan& plan, const Kernels& kernels, const Device& device,
                      const Tuning& tuning) {
  const int unroll = units_in_flight(plan, kernels);
  const int64_t units = plan.units();
  // Enough threads per row that all units of a thread are in flight at once, and at least enough to
  // read whole memory sectors.
  int64_t y = std::max(pow2_ceil(ceil_div<int64_t>(units, unroll)),
                       std::min<int64_t>(pow2_ceil(units), plan.vecs ? 4 : 8));
  // If that doesn't fill the device, more threads per output, down to one unit per thread.
  const int64_t threads = int64_t{device.sms} * tuning.row_threads;
  y = std::max(y, std::min(pow2_ceil(units), pow2_ceil(threads / plan.outputs)));
  plan.y = static_cast<int>(std::min<int64_t>(y, kThreads));
  plan.z = kThreads / plan.y;
  plan.tiles = ceil_div<int64_t>(plan.outputs, plan.z);
  if (plan.z > 1) return;
  split(plan, device, tuning, unroll,
        plan.outer_units > 1 ? tuning.many_rows_blocks : tuning.row_blocks);
}

inline void plan_short_rows(Plan& plan) {
  plan.path = Path::kShortRows;
  plan.y = static_cast<int>(pow2_ceil(plan.units()));
  plan.z = kThreads / plan.y;
  plan.tiles = ceil_div<int64_t>(plan.outputs, int64_t{plan.z} * kVecUnroll);
}

inline void plan_rows_in_vecs(Plan& plan, int values) {
  plan.path = Path::kRowsInVecs;
  plan.z = kThreads;
  const int64_t rows = values / plan.reduced[0].size;
  plan.tiles = ceil_div<int64_t>(plan.outputs, rows * kThreads * kVecUnroll);
}

inline void plan_tile(Plan& plan, const Tuning& tuning, int64_t row_bytes, int values) {
  plan.path = Path::kTile;
  // At most 32 values per thread, and at most the 48 KB of shared memory of any launch.
  constexpr int64_t kShared = 48 << 10;
  plan.y = static_cast<int>(pow2_ceil(std::max(ceil_div<int64_t>(plan.reduced[0].size, 32),
                                               ceil_div(kThreads * row_bytes, kShared))));
  plan.z = kThreads / plan.y;
  // Enough rows per tile that every tile begins at an aligned vector.
  const int64_t least = std::max(1, values / plan.z);
  plan.rows_per_lane = static_cast<int>(
      std::clamp<int64_t>(tuning.tile_bytes / (plan.z * row_bytes) / least, 1, 16) * least);
  const int64_t rows = int64_t{plan.z} * plan.rows_per_lane;
  plan.tiles = ceil_div(plan.outputs, rows);
  plan.shared_bytes = static_cast<size_t>(rows * row_bytes);
}

inline void plan_columns(Plan& plan, const Kernels& kernels, const Device& device,
                         const Tuning& tuning, int values) {
  const int unroll = units_in_flight(plan, kernels);
  const int64_t outer = plan.outputs / plan.kept[0].size;
  const int64_t groups = ceil_div<int64_t>(plan.units(), unroll);
  const int64_t width = plan.column_vecs;
  const int64_t wide = !plan.vecs                            ? tuning.wide_values
                       : plan.units() <= tuning.short_column ? tuning.wide_short
                                                             : tuning.wide;
  if (plan.fold == 1 && width > wide) {
    const int64_t most = kThreads / std::min<int64_t>(groups, kThreads / wide);
    plan.x = static_cast<int>(ceil_div(width, ceil_div(width, most)));
  } else {
    plan.x = static_cast<int>(width);
  }
  plan.y = static_cast<int>(std::min<int64_t>(groups, kThreads / plan.x));
  plan.z = static_cast<int>(std::min<int64_t>(outer, kThreads / (plan.x * plan.y)));
  plan.column_tiles = ceil_div<int64_t>(width, plan.x);
  plan.tiles = plan.column_tiles * ceil_div<int64_t>(outer, plan.z);
  if (plan.z == 1) split(plan, device, tuning, unroll, tuning.column_blocks);
  plan.shared_bytes = kernels.accumulator_bytes * static_cast<size_t>(plan.threads() * values);
}

// Chooses a path for a reduced innermost dimension.
inline void plan_inner_reduced(Plan& plan, const Problem& problem, const Merged& merged,
                               const Kernels& kernels, const Device& device, const Tuning& tuning) {
  const size_t item = size_of(problem.in_dtype);
  const int values = kAccessBytes / static_cast<int>(item);
  const int64_t row = plan.reduced[0].size;
  const int64_t row_bytes = row * static_cast<int64_t>(item);
  const bool can_vec = vecs_are_possible(merged, kernels, values);
  const bool whole_vecs = vecs_are_aligned(problem, merged, values, 1) && row % values == 0;
  const bool back_to_back = plan.num_kept == 1 && plan.num_reduced == 1 &&
                            plan.kept[0].in_stride == row && starts_aligned(problem);
  if (can_vec && whole_vecs && plan.outer_units == 1 && row / values <= tuning.short_row_vecs) {
    plan.vecs = true;
    plan.inner_units = row / values;
    plan_short_rows(plan);
    return;
  }
  if (can_vec && back_to_back && row < values && values % row == 0) {
    plan.packed_out = has_packed_out(problem, plan, values / static_cast<int>(row));
    plan_rows_in_vecs(plan, values);
    return;
  }
  if (can_vec && back_to_back && !whole_vecs && row_bytes <= tuning.tile_row_bytes) {
    plan_tile(plan, tuning, row_bytes, values);
    return;
  }
  plan.vecs = can_vec && (whole_vecs || row >= 2 * values);
  plan.unaligned = plan.vecs && !whole_vecs;
  plan.inner_units = plan.vecs ? row / values : row;
  plan.read_once = reads_once(plan, tuning, item);
  plan_rows(plan, kernels, device, tuning);
  plan.shared_bytes = kernels.accumulator_bytes * static_cast<size_t>(plan.threads());
  if (plan.vecs && whole_vecs && plan.outer_units == 1 && plan.num_kept <= 1 && plan.z == 1 &&
      (plan.linear_out || plan.splits > 1)) {
    plan.path = Path::kLine;
  }
}

// Chooses how columns are read and the shape of the blocks.
inline void plan_inner_kept(Plan& plan, const Problem& problem, const Merged& merged,
                            const Kernels& kernels, const Device& device, const Tuning& tuning) {
  const int values = kAccessBytes / static_cast<int>(size_of(problem.in_dtype));
  const int64_t columns = plan.kept[0].size;
  const bool can_vec = vecs_are_possible(merged, kernels, values);
  if (can_vec && merged.count == 1 && starts_aligned(problem)) {  // nothing is reduced
    plan.packed_out = has_packed_out(problem, plan, values);
    plan_rows_in_vecs(plan, values);
    return;
  }
  plan.path = Path::kColumns;
  plan.inner_units = plan.reduced[0].size;
  plan.column_vecs = columns;
  const int64_t common = std::gcd(columns, int64_t{values});
  const bool back_to_back =
      merged.count > 1 && merged.dims[1].reduced && merged.dims[1].in_stride == columns;
  constexpr int64_t kMostFoldedVecs = 128;
  if (can_vec && columns % values == 0 && vecs_are_aligned(problem, merged, values, 1)) {
    plan.vecs = true;
    plan.column_vecs = columns / values;
  } else if (can_vec && back_to_back && columns / common <= kMostFoldedVecs &&
             plan.reduced[0].size * common >= values) {
    // Rows of columns without gaps between them: `fold` rows are one row of whole vectors.
    plan.vecs = true;
    plan.fold = static_cast<int>(values / common);
    plan.column_vecs = columns / common;
    plan.inner_units = plan.reduced[0].size / plan.fold;
    plan.unaligned = !vecs_are_aligned(problem, merged, values, 2);
  } else if (can_vec && columns >= values) {
    plan.vecs = plan.unaligned = true;
    plan.column_vecs = ceil_div<int64_t>(columns, values);
  }
  plan.packed_out = plan.vecs && plan.fold == 1 && has_packed_out(problem, plan, values);
  plan.read_once = plan.vecs && reads_once(plan, tuning, size_of(problem.in_dtype)) &&
                   !(plan.unaligned && plan.units() <= tuning.unaligned_once_above);
  plan_columns(plan, kernels, device, tuning, plan.vecs ? values : 1);
}

}  // namespace detail

inline Plan make_plan(const Problem& problem, const Kernels& kernels, const Device& device,
                      const Tuning& tuning = {}) {
  Plan plan;
  const detail::Merged merged = detail::merge_dims(problem);
  int64_t expected = 1;
  plan.linear_out = true;
  for (int d = 0; d < merged.count; ++d) {
    const Dim& dim = merged.dims[d];
    if (dim.reduced) {
      plan.reduced[plan.num_reduced++] = dim;
      continue;
    }
    plan.kept[plan.num_kept++] = dim;
    plan.linear_out = plan.linear_out && dim.out_stride == expected;
    expected *= dim.size;
  }
  plan.outputs = expected;
  for (int d = 1; d < plan.num_reduced; ++d) plan.outer_units *= plan.reduced[d].size;

  if (merged.count == 0 || merged.dims[0].reduced) {
    detail::plan_inner_reduced(plan, problem, merged, kernels, device, tuning);
  } else {
    detail::plan_inner_kept(plan, problem, merged, kernels, device, tuning);
  }
  return plan;
}

// Inside a launch, all counts have 32 bits, except the number of vectors in a single row. Larger
// problems are halved until each part fits into a launch. Too many outputs are halved along a kept
// dimension, too many units of an output along a reduced one.
inline bool has_too_many_outputs(const Plan& plan, int64_t limit = kMaxIndex32) {
  return plan.outputs > limit || plan.blocks() > limit || plan.num_kept > kMaxKernelDims;
}

inline bool has_too_many_units(const Plan& plan, int64_t limit = kMaxIndex32) {
  const int64_t edges = plan.outer_units * 2 * kAccessBytes;  // values at the ends of rows, at most
  const bool one_row = plan.vecs && plan.outer_units == 1;    // its units are counted in 64 bits
  return plan.num_reduced > kMaxKernelDims || (!one_row && (plan.units() > limit || edges > limit));
}

// Splits a problem into two halves along a kept or a reduced dimension. Halves along a reduced
// dimension have the outputs of the whole problem, in its order.
inline void halve(const Problem& problem, bool reduced, Problem& first, Problem& second) {
  const detail::Merged merged = detail::merge_dims(problem);
  const int chosen =
      dim_to_halve(merged.dims, merged.count, detail::count_of(merged, reduced) > kMaxKernelDims,
                   [&](const Dim& dim) { return dim.reduced == reduced; });
  first = problem;
  first.num_dims = merged.count;
  std::copy_n(merged.dims, merged.count, first.dims);
  second = first;
  const Dim& dim = merged.dims[chosen];
  const int64_t half = half_of(dim.size);
  first.dims[chosen].size = half;
  second.dims[chosen].size = dim.size - half;
  second.in = moved(problem.in, half * dim.in_stride, problem.in_dtype);
  second.out = moved(problem.out, half * dim.out_stride, problem.dtype);
}

// The number of parts into which a problem is split because of its number of dimensions alone.
inline int64_t slices_of(const Problem& problem) {
  if (problem.num_dims <= kMaxKernelDims) return 1;
  const detail::Merged merged = detail::merge_dims(problem);
  int64_t slices = 1;
  for (const bool reduced : {false, true}) {
    int64_t sizes[kMaxDims];
    int count = 0;
    for (int d = 0; d < merged.count; ++d) {
      if (merged.dims[d].reduced == reduced) sizes[count++] = merged.dims[d].size;
    }
    std::sort(sizes, sizes + count);
    for (int d = 0; d < count - kMaxKernelDims; ++d) slices *= sizes[d];
  }
  return slices;
}

}  // namespace gpuopt::reduce
