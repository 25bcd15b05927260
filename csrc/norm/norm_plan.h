// From a problem to its launches: plain host C++, tested without a GPU.
//
// A row that fits in the registers of a block is read once, by some lanes of a warp or by some
// warps. A longer one is read twice, where the second read is from the L2 cache.
#pragma once

#include <algorithm>
#include <optional>
#include <variant>

#include "common/device.h"
#include "common/launch_shape.h"
#include "norm/norm_args.h"
#include "norm/norm_problem.h"

namespace gpuopt::norm {

// What a thread reads at once: 16 bytes, two values of a half type, or a value.
enum class Access : uint8_t { kVector, kPair, kValue };

constexpr int values_of(Access access, size_t value_bytes) {
  if (access == Access::kValue) return 1;
  return access == Access::kPair ? 2 : kAccessBytes / static_cast<int>(value_bytes);
}

// Units of a row that a thread keeps in registers: 64 bytes of it, or 16 values of a half type.
constexpr int forward_slots(Access access, size_t value_bytes) {
  if (access == Access::kVector) return 4;
  return value_bytes == 8 ? 8 : 16;
}
// Units of the input, and as many of the gradient. Each value has two sums in registers, and the
// units of the next row are in flight, so slots are few.
constexpr int backward_slots(Access access, size_t value_bytes) {
  if (access == Access::kVector) return 2;
  return value_bytes == 8 ? 4 : 8;
}
// The same of wide rows of float32, where no further row is in flight. Half types have no registers
// for more.
constexpr int kWideSlots = 4;

// Wide rows need more slots in a backward pass.
enum class Width : uint8_t { kUsual, kShort, kWide };

// Short rows: a thread has one vector of each of some rows.
constexpr int kShortUnits = 8, kForwardRows = 4, kBackwardRows = 2;

constexpr int kThreads = 256;          // of a block that has several rows
constexpr int kForwardThreads = 512;   // the most of a block
constexpr int kBackwardThreads = 512;  // the most of a block
// Threads of an SM that loops over rows, whose registers limit them.
constexpr int64_t resident_threads(Access access, size_t value_bytes, Width width) {
  return access == Access::kVector && value_bytes == 4 && width != Width::kWide ? 768 : 512;
}
constexpr int kLongThreads = 256, kLongBlocks = 3;  // threads, and blocks of an SM
constexpr int kMostFinishThreads = 1024;
constexpr int kColumnLanes = 32, kColumnRows = 8;  // the threads of a block that adds up columns
constexpr int kFinishLanes = 32;

template <typename Args>
struct RowsPlan {
  Width width = Width::kUsual;
  Args args;
  LaunchShape shape;
};

template <typename Args>
struct LongPlan {
  Args args;
  Parts parts;
  LaunchShape shape;  // of each launch
  size_t sums_bytes = 0;
};

struct ForwardPlan {
  DType dtype = DType::kFloat32;
  Access access = Access::kValue;
  std::variant<RowsPlan<ForwardArgs>, LongPlan<ForwardArgs>> path;
};

// The gradients of weight and bias where rows are long: a block has some columns of some rows.
struct ColumnsPlan {
  BackwardArgs args;
  uint32_t rows = 0;  // of a block
  FastDiv tiles;      // of columns
  LaunchShape shape;
};

struct FinishPlan {
  FinishArgs args;
  DType dtype = DType::kFloat32;  // of the gradients
  LaunchShape shape;
  size_t partials_bytes = 0;
};

struct BackwardPlan {
  DType dtype = DType::kFloat32;
  Access access = Access::kValue;
  // The gradient of the input. Rows that are not long add up both other gradients, too.
  std::optional<RowsPlan<BackwardArgs>> rows;
  std::optional<LongPlan<BackwardArgs>> long_rows;
  std::optional<ColumnsPlan> columns;
  std::optional<FinishPlan> finish;
};

namespace detail {

inline RowOffsets offsets_of(const Rows& rows, int operand) {
  RowOffsets offsets;
  for (int d = 0; d < kMaxRowDims; ++d) {
    offsets.strides[d] = rows.dims[d].stride(operand);
    if (d > 0 && rows.dims[d].size > 1) offsets.is_uniform = false;
  }
  if (offsets.is_uniform) return offsets;
  for (int d = 0; d + 1 < kMaxRowDims; ++d) offsets.sizes[d] = divide_by(rows.dims[d].size);
  return offsets;
}

// Whether all rows of all operands begin at multiples of so many bytes, and are multiples of them.
struct Alignment {
  const Rows& rows;
  DType dtype;
  const Affine& affine;

  bool holds(int64_t bytes, std::initializer_list<const void*> operands) const {
    const auto size = static_cast<int64_t>(size_of(dtype)), values = bytes / size;
    bool aligned = rows.length % values == 0;
    for (const void* operand : operands) aligned = aligned && is_aligned(operand, bytes);
    for (const RowDim& dim : rows.dims) {
      aligned = aligned && dim.input_stride % values == 0 && dim.grad_stride % values == 0;
    }
    // Factors are read in vectors of at most 16 bytes, too.
    const int64_t factors =
        std::min<int64_t>(kAccessBytes, values * static_cast<int64_t>(size_of(affine.dtype)));
    return aligned && is_aligned(affine.weight, factors) && is_aligned(affine.bias, factors);
  }
};

inline Access widest_access(const Alignment& alignment,
                            std::initializer_list<const void*> operands) {
  const size_t size = size_of(alignment.dtype);
  if (size < 8 && alignment.holds(kAccessBytes, operands)) return Access::kVector;
  return size == 2 && alignment.holds(4, operands) ? Access::kPair : Access::kValue;
}

// What a kernel has registers for.
struct Limits {
  int64_t slots;       // of a thread
  int64_t short_rows;  // of a thread, at once
  int64_t threads;     // of a block
};

struct Lanes {
  Width width = Width::kUsual;
  int64_t lanes = 1;   // threads of a row
  int64_t groups = 1;  // of a block
  int64_t rows = 1;    // of a block

  int64_t threads() const { return groups * lanes; }
};

// Nothing if a row is too long for a block.
inline std::optional<Lanes> lanes_of(const Rows& rows, Access access, size_t size,
                                     const Limits& limits, const Device& device) {
  const int64_t slots = limits.slots;
  const int64_t values = values_of(access, size), units = rows.length / values;
  Lanes found;
  const bool is_short = access == Access::kVector && units <= kShortUnits;
  if (is_short) found.width = Width::kShort;
  int64_t lanes = is_short ? pow2_ceil(units) : pow2_ceil(ceil_div(units, slots));
  // Threads that are side by side read at least a sector of 32 bytes, or 64 in vectors.
  const int64_t least = access == Access::kVector ? 4 : 32 / (values * static_cast<int64_t>(size));
  if (!is_short) lanes = std::max(lanes, std::min(least, pow2_ceil(units)));
  if (lanes > kThreads / 2) lanes = ceil_div(ceil_div(units, slots), int64_t{kWarp}) * kWarp;
  if (lanes > limits.threads) return std::nullopt;
  found.lanes = lanes;
  found.groups = std::max<int64_t>(kThreads / lanes, 1);
  const int64_t at_once = is_short ? limits.short_rows : 1;
  // Few rows are spread over all SMs.
  while (found.groups > 1 && found.threads() > 2 * kWarp &&
         ceil_div(rows.count, found.groups * at_once) < device.sms) {
    found.groups /= 2;
  }
  found.rows = found.groups * at_once;
  return found;
}

inline std::optional<Lanes> backward_lanes(const Rows& rows, Access access, size_t size,
                                           const Device& device) {
  const Limits limits{backward_slots(access, size), kBackwardRows, kBackwardThreads};
  auto lanes = lanes_of(rows, access, size, limits, device);
  if (lanes || access != Access::kVector || size != 4) return lanes;
  const Limits wide{kWideSlots, kBackwardRows, kBackwardThreads};
  lanes = lanes_of(rows, access, size, wide, device);
  if (lanes) lanes->width = Width::kWide;
  return lanes;
}

inline Tiling tiling_of(const Rows& rows, Access access, size_t size) {
  Tiling tiling;
  tiling.rows = static_cast<uint32_t>(rows.count);
  tiling.length = rows.length;
  tiling.units = rows.length / values_of(access, size);
  return tiling;
}

inline void set_lanes(Tiling& tiling, const Lanes& lanes) {
  tiling.lanes = divide_by(lanes.lanes);
  tiling.groups = static_cast<uint32_t>(lanes.groups);
}

inline LaunchShape shape_of(int64_t blocks, int64_t threads) {
  LaunchShape shape;
  shape.blocks = static_cast<unsigned>(blocks);
  shape.threads = static_cast<unsigned>(threads);
  shape.use_pdl = true;
  return shape;
}

inline Parameters parameters_of(const Affine& affine, DType dtype) {
  return {affine.weight, affine.bias, affine.dtype != dtype};
}

// Bytes of a value in registers: sums, means and deviations.
inline size_t compute_bytes(DType dtype) { return dtype == DType::kFloat64 ? 8 : 4; }

// Long rows are read in vectors or one value at a time.
inline Access long_access(Access access) {
  return access == Access::kPair ? Access::kValue : access;
}

template <typename Args>
LongPlan<Args> plan_long(Args args, DType dtype, int64_t slots, const Device& device) {
  LongPlan<Args> plan{args};
  const Tiling& tiling = args.tiling;
  const int64_t most = ceil_div(tiling.units, kLongThreads * slots);
  const int64_t parts =
      std::clamp<int64_t>(int64_t{kLongBlocks} * device.sms / tiling.rows, 1, most);
  plan.parts.units = ceil_div(tiling.units, parts);
  plan.parts.count = divide_by(ceil_div(tiling.units, plan.parts.units));
  const int64_t blocks = int64_t{tiling.rows} * plan.parts.count.divisor;
  if (plan.parts.count.divisor > 1) {
    plan.sums_bytes = static_cast<size_t>(blocks) * 2 * compute_bytes(dtype);
  }
  plan.shape = shape_of(blocks, kLongThreads);
  return plan;
}

// Sets the launch: both gradients, and enough threads that each adds few partial ones.
inline FinishPlan plan_finish(FinishPlan plan) {
  plan.shape =
      shape_of(2 * ceil_div<int64_t>(plan.args.length, kFinishLanes),
               kFinishLanes * std::min<int64_t>(kMostFinishThreads / kFinishLanes,
                                                pow2_ceil(ceil_div<int64_t>(plan.args.count, 4))));
  return plan;
}

inline FinishPlan plan_finish(const Backward& problem, int64_t partials) {
  FinishPlan plan;
  plan.args = {nullptr, {problem.weight_grad, problem.bias_grad}, partials, problem.rows.length};
  plan.dtype = problem.affine.dtype;
  plan.partials_bytes = static_cast<size_t>(partials) * 2 *
                        static_cast<size_t>(problem.rows.length) * compute_bytes(problem.dtype);
  return plan_finish(plan);
}

}  // namespace detail

inline ForwardPlan plan(const Forward& problem, const Device& device) {
  ForwardPlan plan;
  const size_t size = size_of(problem.dtype);
  const Rows& rows = problem.rows;
  plan.dtype = problem.dtype;
  plan.access =
      detail::widest_access({rows, problem.dtype, problem.affine}, {problem.input, problem.out});
  ForwardArgs args;
  args.input = problem.input;
  args.out = problem.out;
  args.mean = problem.mean;
  args.rstd = problem.rstd;
  args.parameters = detail::parameters_of(problem.affine, problem.dtype);
  args.input_rows = detail::offsets_of(rows, 0);
  args.eps = problem.eps;
  args.is_rms = problem.is_rms;
  args.tiling = detail::tiling_of(rows, plan.access, size);
  const detail::Limits limits{forward_slots(plan.access, size), kForwardRows, kForwardThreads};
  if (const auto lanes = detail::lanes_of(rows, plan.access, size, limits, device)) {
    detail::set_lanes(args.tiling, *lanes);
    plan.path = RowsPlan<ForwardArgs>{
        lanes->width, args, detail::shape_of(ceil_div(rows.count, lanes->rows), lanes->threads())};
    return plan;
  }
  plan.access = detail::long_access(plan.access);
  args.tiling = detail::tiling_of(rows, plan.access, size);
  plan.path = detail::plan_long(args, problem.dtype, forward_slots(plan.access, size), device);
  return plan;
}

inline BackwardPlan plan(const Backward& problem, const Device& device) {
  BackwardPlan plan;
  const size_t size = size_of(problem.dtype);
  const Rows& rows = problem.rows;
  const bool has_columns = problem.weight_grad != nullptr || problem.bias_grad != nullptr;
  plan.dtype = problem.dtype;
  plan.access = detail::widest_access({rows, problem.dtype, problem.affine},
                                      {problem.grad, problem.input, problem.input_grad});
  BackwardArgs args;
  args.grad = problem.grad;
  args.input = problem.input;
  args.mean = problem.mean;
  args.rstd = problem.rstd;
  args.input_grad = problem.input_grad;
  args.has_bias = problem.bias_grad != nullptr;
  args.parameters = detail::parameters_of(problem.affine, problem.dtype);
  args.input_rows = detail::offsets_of(rows, 0);
  args.grad_rows = detail::offsets_of(rows, 1);
  args.tiling = detail::tiling_of(rows, plan.access, size);
  if (const auto lanes = detail::backward_lanes(rows, plan.access, size, device)) {
    detail::set_lanes(args.tiling, *lanes);
    // Blocks stay on their SM and loop over rows, so that partial gradients are few. All blocks
    // have equally many iterations.
    const int64_t tiles = ceil_div(rows.count, lanes->rows), threads = lanes->threads();
    const int64_t resident = resident_threads(plan.access, size, lanes->width) / threads;
    const int64_t iterations = ceil_div(tiles, device.sms * resident);
    const int64_t blocks = ceil_div(tiles, iterations);
    plan.rows = RowsPlan<BackwardArgs>{lanes->width, args, detail::shape_of(blocks, threads)};
    if (has_columns) plan.finish = detail::plan_finish(problem, blocks);
    return plan;
  }
  plan.access = detail::long_access(plan.access);
  args.tiling = detail::tiling_of(rows, plan.access, size);
  if (problem.input_grad != nullptr) {
    plan.long_rows =
        detail::plan_long(args, problem.dtype, backward_slots(plan.access, size), device);
  }
  if (!has_columns) return plan;
  ColumnsPlan columns{args};
  const int64_t tiles = ceil_div<int64_t>(args.tiling.units, kColumnLanes);
  const int64_t splits = std::clamp<int64_t>(ceil_div<int64_t>(4 * device.sms, tiles), 1,
                                             ceil_div<int64_t>(rows.count, 4 * kColumnRows));
  columns.rows = static_cast<uint32_t>(ceil_div(rows.count, splits));
  columns.tiles = divide_by(tiles);
  const int64_t partials = ceil_div<int64_t>(rows.count, columns.rows);
  columns.shape = detail::shape_of(tiles * partials, kColumnLanes * kColumnRows);
  plan.columns = columns;
  plan.finish = detail::plan_finish(problem, partials);
  return plan;
}

}  // namespace gpuopt::norm
