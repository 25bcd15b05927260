// Plans dot products: from sizes, strides, dtypes and alignment to a path, blocks, threads and
// splits of rows. This is plain host C++, so tests run it without a GPU.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/device.h"
#include "common/strided.h"
#include "dot/dot_tuning.h"

namespace gpuopt::dot {

// Rows of values. Strides are in elements and may be 0.
struct Operand {
  const void* data = nullptr;
  int64_t stride = 1;
  int64_t row_stride = 0;
  bool conjugate = false;  // use the conjugate of the values (complex dtypes only)
};

struct Problem {
  Operand self, tensor;
  void* out = nullptr;  // [rows], contiguous
  DType dtype = DType::kFloat32;
  int64_t rows = 1;  // at least 1
  int64_t size = 1;  // values per row, at least 1
};

enum class Path : uint8_t {
  // One row, both operands aligned. One block reads it, or many blocks.
  kLine,
  // Contiguous rows at any address. Vectors follow self's alignment. If tensor is aligned
  // differently, each of its vectors is put together from two aligned ones.
  kRows,
  // Aligned rows of at most Tuning::short_row_vecs vectors. Each thread reads several rows.
  kShortRows,
  // Other short rows without gaps between them. A block copies its rows to shared memory as one
  // piece.
  kTile,
  // Any strides, value by value.
  kValues,
};

struct Plan {
  Path path = Path::kLine;
  bool shifted = false;     // kRows: self and tensor are aligned differently
  bool read_once = false;   // loads are streaming: their data leaves the caches first
  bool rows_first = false;  // kValues: neighbouring threads read neighbouring rows
  // Two flags are enough: conj(a) conj(b) = conj(a b), and a conj(b) = conj(conj(a) b).
  bool conjugate_self = false;
  bool conjugate_out = false;

  // A block has x * y threads: y along each of x rows.
  int x = 1, y = 1;
  int threads() const { return x * y; }
  int unroll = 1;         // kLine: vectors of each operand that a thread has in flight
  int rows_per_lane = 1;  // kShortRows, kTile: rows that a thread reads
  size_t shared_bytes = 0;
  int64_t tiles = 1;  // blocks that cover the rows; each has x * rows_per_lane rows
  // The units (vectors or values) of a row are dealt to `splits` blocks in groups. A group is as
  // many units as a block has in flight. Blocks write partial sums to a workspace, and a second
  // launch adds them.
  int splits = 1;
  int64_t blocks() const { return tiles * splits; }
};

namespace detail {

inline uintptr_t misalignment(const Operand& operand) {
  return reinterpret_cast<uintptr_t>(operand.data) % kAccessBytes;
}

inline bool starts_aligned(const Problem& problem) {
  return misalignment(problem.self) == 0 && misalignment(problem.tensor) == 0;
}

// Chooses y so that a thread has about `unroll` units of a row, and x so that rows fill the block.
// At least `least` threads read a row, unless it has fewer units.
inline void shape_block(Plan& plan, const Problem& problem, int64_t units, int unroll,
                        int64_t least) {
  const int64_t wanted = std::max(pow2_ceil(ceil_div<int64_t>(units, unroll)),
                                  std::min<int64_t>(pow2_ceil(units), least));
  plan.y = static_cast<int>(std::min<int64_t>(wanted, kThreads));
  plan.x = static_cast<int>(std::min<int64_t>(kThreads / plan.y, pow2_ceil(problem.rows)));
  // A block has at least one whole warp.
  if (plan.x * plan.y < 32) plan.x = 32 / plan.y;
  plan.tiles = ceil_div<int64_t>(problem.rows, plan.x);
}

inline void split(Plan& plan, const Device& device, int blocks, int64_t units, int unroll) {
  const int64_t groups = ceil_div<int64_t>(units, int64_t{plan.y} * unroll);
  const int64_t wanted = int64_t{device.sms} * blocks;
  const int64_t most = std::min(wanted / plan.tiles, groups);
  if (most > 1) plan.splits = static_cast<int>(ceil_div(groups, ceil_div(groups, most)));
}

inline void plan_line(Plan& plan, const Device& device, const Tuning& tuning, int64_t vecs) {
  plan.path = Path::kLine;
  plan.unroll = kVecUnroll;
  if (vecs <= tuning.unsplit_vecs) {
    plan.y = static_cast<int>(
        std::clamp<int64_t>(pow2_ceil(ceil_div<int64_t>(vecs, kVecUnroll)), 32, 2 * kThreads));
    return;
  }
  // One vector per thread, as long as the device holds a thread for every vector at once.
  if (vecs <= int64_t{device.sms} * kBlocks * kThreads) plan.unroll = 1;
  plan.y = kThreads;
  const int64_t blocks = int64_t{device.sms} * tuning.line_blocks;
  while (plan.y < tuning.line_threads && vecs > blocks * plan.y * plan.unroll) plan.y *= 2;
  split(plan, device, tuning.line_blocks, vecs, plan.unroll);
}

inline void plan_rows(Plan& plan, const Problem& problem, const Device& device,
                      const Tuning& tuning, int64_t vecs) {
  plan.path = Path::kRows;
  const int unroll = plan.shifted ? kShiftedUnroll : kVecUnroll;
  shape_block(plan, problem, vecs, unroll, 4);
  if (vecs > tuning.unsplit_vecs) {
    split(plan, device, plan.shifted ? tuning.shifted_blocks : tuning.row_blocks, vecs, unroll);
  }
}

inline void plan_short_rows(Plan& plan, const Problem& problem, int64_t vecs) {
  plan.path = Path::kShortRows;
  plan.y = static_cast<int>(pow2_ceil(vecs));
  plan.x = kThreads / plan.y;
  plan.rows_per_lane = kVecUnroll;
  plan.tiles = ceil_div<int64_t>(problem.rows, int64_t{plan.x} * plan.rows_per_lane);
}

inline void plan_tile(Plan& plan, const Problem& problem, const Tuning& tuning, int values) {
  plan.path = Path::kTile;
  // At most 32 values per thread, and at most the 48 KB of shared memory of any launch.
  constexpr int64_t kShared = 48 << 10;
  const int64_t row_bytes = 2 * problem.size * static_cast<int64_t>(size_of(problem.dtype));
  plan.y = static_cast<int>(pow2_ceil(
      std::max(ceil_div<int64_t>(problem.size, 32), ceil_div(kThreads * row_bytes, kShared))));
  plan.x = kThreads / plan.y;
  // Enough rows per tile that every tile begins at an aligned vector.
  const int64_t least = std::max(1, values / plan.x);
  plan.rows_per_lane = static_cast<int>(
      std::clamp<int64_t>(tuning.tile_bytes / (plan.x * row_bytes) / least, 1, 16) * least);
  const int64_t rows = int64_t{plan.x} * plan.rows_per_lane;
  plan.tiles = ceil_div(problem.rows, rows);
  plan.shared_bytes = static_cast<size_t>(rows * row_bytes);
}

inline void plan_values(Plan& plan, const Problem& problem, const Device& device,
                        const Tuning& tuning) {
  plan.path = Path::kValues;
  const auto item = static_cast<int64_t>(size_of(problem.dtype));
  const int unroll = item >= 8 ? kWideUnroll : kValueUnroll;
  // The memory traffic of one more thread that reads a and b elements away from its neighbour: at
  // most a sector of 32 bytes per operand.
  const auto cost = [item](int64_t a, int64_t b) {
    return std::min<int64_t>(a * item, 32) + std::min<int64_t>(b * item, 32);
  };
  plan.rows_first = problem.rows > 1 && cost(problem.self.row_stride, problem.tensor.row_stride) <
                                            cost(problem.self.stride, problem.tensor.stride);
  if (plan.rows_first) {
    plan.x = static_cast<int>(std::min<int64_t>(32, pow2_ceil(problem.rows)));
    plan.y = static_cast<int>(
        std::min<int64_t>(kThreads / plan.x, pow2_ceil(ceil_div<int64_t>(problem.size, unroll))));
    plan.x = std::max(plan.x, 32 / plan.y);
    // An SM holds at most 32 blocks. Blocks of one warp would fill only half of its 64 warps, so
    // blocks grow while there are enough rows. (Not measured.)
    while (2 * plan.x * plan.y <= kThreads &&
           ceil_div<int64_t>(problem.rows, 2 * plan.x) >= int64_t{32} * device.sms) {
      plan.x *= 2;
    }
    plan.tiles = ceil_div<int64_t>(problem.rows, plan.x);
  } else {
    shape_block(plan, problem, problem.size, unroll, 1);
  }
  if (problem.size > tuning.unsplit_values) {
    split(plan, device, tuning.value_blocks, problem.size, unroll);
  }
}

}  // namespace detail

inline Plan make_plan(const Problem& problem, const Device& device, const Tuning& tuning = {}) {
  Plan plan;
  const Operand &self = problem.self, &tensor = problem.tensor;
  plan.conjugate_out = tensor.conjugate;
  plan.conjugate_self = self.conjugate != tensor.conjugate;

  const auto item = static_cast<int64_t>(size_of(problem.dtype));
  const int64_t values = kAccessBytes / item;
  const int64_t bytes = 2 * problem.rows * problem.size * item;
  plan.read_once = bytes >= tuning.once_from && bytes < tuning.once_below;
  const bool contiguous = problem.size == 1 || (self.stride == 1 && tensor.stride == 1);
  const bool one_row = problem.rows == 1;
  const bool same_shift = detail::misalignment(self) == detail::misalignment(tensor) &&
                          (one_row || (self.row_stride - tensor.row_stride) % values == 0);
  const bool aligned =
      same_shift && detail::misalignment(self) == 0 && (one_row || self.row_stride % values == 0);
  const int64_t vecs = problem.size / values;
  const bool back_to_back = contiguous && !one_row && self.row_stride == problem.size &&
                            tensor.row_stride == problem.size && detail::starts_aligned(problem);
  const bool whole_vecs = aligned && problem.size % values == 0;
  if (contiguous && aligned && one_row) {
    detail::plan_line(plan, device, tuning, vecs);
  } else if (contiguous && whole_vecs && vecs <= tuning.short_row_vecs) {
    detail::plan_short_rows(plan, problem, vecs);
  } else if (back_to_back && !whole_vecs && problem.size * item <= tuning.tile_row_bytes) {
    detail::plan_tile(plan, problem, tuning, static_cast<int>(values));
  } else if (contiguous && (whole_vecs || vecs >= 4)) {
    plan.shifted = !same_shift;
    detail::plan_rows(plan, problem, device, tuning, vecs);
  } else {
    detail::plan_values(plan, problem, device, tuning);
  }
  return plan;
}

// Splits a problem into two halves of the rows.
inline void halve(const Problem& problem, Problem& first, Problem& second) {
  first = second = problem;
  first.rows = problem.rows / 2;
  second.rows = problem.rows - first.rows;
  second.self.data = moved(problem.self.data, first.rows * problem.self.row_stride, problem.dtype);
  second.tensor.data =
      moved(problem.tensor.data, first.rows * problem.tensor.row_stride, problem.dtype);
  second.out = moved(problem.out, first.rows, problem.dtype);
}

}  // namespace gpuopt::dot
