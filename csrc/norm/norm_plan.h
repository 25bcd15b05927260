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

constexpr int kAheadBytes = 128;

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
// Units of the input, and as many of the gradient: 16 values of a thread, each with two sums in
// registers.
constexpr int backward_slots(Access access, size_t value_bytes) {
  if (access == Access::kVector) return value_bytes == 4 ? 4 : 2;
  return value_bytes == 8 ? 4 : 8;
}
// Rows of a thread in shared memory, the one that is computed among them. Those ahead have about
// 128 bytes.
constexpr int stages_of(int slots, size_t unit_bytes) {
  return 1 + std::clamp(kAheadBytes / (2 * slots * static_cast<int>(unit_bytes)), 1, 3);
}

// Short rows: a thread has one vector of each of some rows.
constexpr int kShortUnits = 8, kForwardRows = 4;

constexpr int kFewThreads = 128;      // of an SM: see is_few()
constexpr int kThreads = 256;         // of a block that has several rows
constexpr int kForwardThreads = 512;  // the most of a block
// Threads of an SM that loops over rows, and the most of a block: registers limit them.
constexpr int backward_threads(int slots) { return slots == 1 ? 768 : 512; }
constexpr int kLongThreads = 256, kLongBlocks = 3;  // threads, and blocks of an SM
constexpr int kMostFinishThreads = 1024;
constexpr int kColumnLanes = 32, kColumnRows = 8;  // the threads of a block that adds up columns
constexpr int kFinishLanes = 32;
constexpr int64_t kSharedReserve = 8 << 10;  // for the sums of a block

template <typename Args>
struct RowsPlan {
  int slots = 1;  // units of a thread
  int rows = 1;   // of a thread, at once
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
      aligned = aligned && dim.input_stride % values == 0 && dim.other_stride % values == 0;
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

struct Lanes {
  int64_t lanes = 1;   // threads of a row
  int64_t groups = 1;  // of a block
  int64_t rows = 1;    // of a block

  int64_t threads() const { return groups * lanes; }
};

// Few rows have a thread for each unit, because SMs are idle otherwise: fewer than kFewThreads
// would be on each.
inline bool is_few(const Tiling& tiling, int64_t slots, int64_t most_threads,
                   const Device& device) {
  const int64_t threads = tiling.rows * ceil_div(tiling.units, slots);
  return threads < int64_t{kFewThreads} * device.sms && tiling.units <= most_threads;
}

// A thread has so many slots of each of `at_once` rows. Nothing if a row is too long for a block.
inline std::optional<Lanes> lanes_of(const Tiling& tiling, int64_t unit_bytes, int64_t slots,
                                     int64_t at_once, int64_t most_threads, const Device& device) {
  Lanes found;
  // Threads that are side by side read at least a sector of 32 bytes, or 64 in vectors.
  const int64_t least = unit_bytes == kAccessBytes ? 4 : 32 / unit_bytes;
  const int64_t wanted = ceil_div(tiling.units, slots);
  int64_t lanes = std::max(pow2_ceil(wanted), std::min(least, pow2_ceil(tiling.units)));
  if (lanes > kWarp) lanes = ceil_div(wanted, int64_t{kWarp}) * kWarp;
  if (lanes > most_threads) return std::nullopt;
  found.lanes = lanes;
  found.groups = std::max<int64_t>(kThreads / lanes, 1);
  while (found.threads() > most_threads) found.groups /= 2;
  // Few rows are spread over all SMs.
  while (found.groups > 1 && found.threads() > 2 * kWarp &&
         ceil_div<int64_t>(tiling.rows, found.groups * at_once) < device.sms) {
    found.groups /= 2;
  }
  found.rows = found.groups * at_once;
  return found;
}

// Bytes of a value in registers: sums, means and deviations.
inline size_t compute_bytes(DType dtype) { return dtype == DType::kFloat64 ? 8 : 4; }

// Bytes of shared memory for each thread of a backward pass.
inline int64_t ahead_bytes(int64_t unit_bytes, int slots, int operands, DType dtype) {
  const auto statistics = 2 * static_cast<int64_t>(compute_bytes(dtype));
  return (operands * unit_bytes * slots + statistics) *
         stages_of(slots, static_cast<size_t>(unit_bytes));
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
  return {affine.weight, affine.bias, affine.dtype != dtype, affine.activation};
}

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

// Blocks stay on their SM and loop over rows, so that partial gradients are few. All blocks have
// equally many iterations. False if a row is too long for a block.
inline bool plan_rows(BackwardPlan& plan, BackwardArgs args, const Device& device) {
  const size_t size = size_of(plan.dtype);
  const auto unit_bytes = static_cast<int64_t>(size) * values_of(plan.access, size);
  const int64_t memory = device.shared_bytes - kSharedReserve;
  const bool has_one_slot =
      plan.access == Access::kVector &&
      (args.tiling.units <= kShortUnits ||
       is_few(args.tiling, backward_slots(plan.access, size), backward_threads(1), device));
  const int slots = has_one_slot ? 1 : backward_slots(plan.access, size);
  const int64_t bytes =
      ahead_bytes(unit_bytes, slots, args.sum_grad != nullptr ? 3 : 2, plan.dtype);
  const int64_t most_threads = std::min<int64_t>(backward_threads(slots), memory / bytes);
  const auto lanes = lanes_of(args.tiling, unit_bytes, slots, 1, most_threads, device);
  if (!lanes) return false;
  set_lanes(args.tiling, *lanes);
  const int64_t tiles = ceil_div<int64_t>(args.tiling.rows, lanes->rows);
  const int64_t resident = most_threads / lanes->threads();
  const int64_t iterations = ceil_div(tiles, device.sms * resident);
  plan.rows = RowsPlan<BackwardArgs>{slots, 1, args,
                                     shape_of(ceil_div(tiles, iterations), lanes->threads())};
  plan.rows->shape.shared_bytes = static_cast<size_t>(bytes * lanes->threads());
  return true;
}

}  // namespace detail

inline ForwardPlan plan(const Forward& problem, const Device& device) {
  ForwardPlan plan;
  const size_t size = size_of(problem.dtype);
  const Rows& rows = problem.rows;
  plan.dtype = problem.dtype;
  plan.access = detail::widest_access({rows, problem.dtype, problem.affine},
                                      {problem.input, problem.residual, problem.sum, problem.out});
  ForwardArgs args{problem.input, problem.residual, problem.sum,
                   problem.out,   problem.mean,     problem.rstd};
  args.parameters = detail::parameters_of(problem.affine, problem.dtype);
  args.input_rows = detail::offsets_of(rows, 0);
  args.residual_rows = detail::offsets_of(rows, 1);
  args.eps = problem.eps;
  args.is_rms = problem.is_rms;
  args.tiling = detail::tiling_of(rows, plan.access, size);
  const auto unit_bytes = static_cast<int64_t>(size) * values_of(plan.access, size);
  RowsPlan<ForwardArgs> path;
  path.slots = forward_slots(plan.access, size);
  if (plan.access == Access::kVector) {
    if (args.tiling.units <= kShortUnits) {
      path.slots = 1;
      path.rows = kForwardRows;
    } else if (detail::is_few(args.tiling, path.slots, kForwardThreads, device)) {
      path.slots = 1;
    }
  }
  if (const auto lanes = detail::lanes_of(args.tiling, unit_bytes, path.slots, path.rows,
                                          kForwardThreads, device)) {
    detail::set_lanes(args.tiling, *lanes);
    path.args = args;
    path.shape = detail::shape_of(ceil_div(rows.count, lanes->rows), lanes->threads());
    plan.path = path;
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
  plan.access =
      detail::widest_access({rows, problem.dtype, problem.affine},
                            {problem.grad, problem.input, problem.sum_grad, problem.input_grad});
  BackwardArgs args{problem.grad, problem.input, problem.mean, problem.rstd};
  args.input_grad = problem.input_grad;
  if (problem.input_grad != nullptr) args.sum_grad = problem.sum_grad;
  args.has_bias = problem.bias_grad != nullptr;
  args.parameters = detail::parameters_of(problem.affine, problem.dtype);
  args.input_rows = detail::offsets_of(rows, 0);
  args.grad_rows = detail::offsets_of(rows, 1);
  args.tiling = detail::tiling_of(rows, plan.access, size);
  if (detail::plan_rows(plan, args, device)) {
    if (has_columns) plan.finish = detail::plan_finish(problem, plan.rows->shape.blocks);
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
