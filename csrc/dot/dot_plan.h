// Plans dot products: from sizes, strides, dtypes and alignment to a kernel, its arguments, and the
// blocks that rows are dealt to. This is plain host C++, so tests run it without a GPU.
#pragma once

#include <utility>

#include "common/device.h"
#include "common/strided.h"
#include "common/tuning.h"
#include "dot/dot_args.h"
#include "dot/dot_tuning.h"

namespace gpuopt::dot {

// Rows of values. Strides are in elements and may be 0.
struct Operand {
  const void* data = nullptr;
  int64_t stride = 1;
  int64_t row_stride = 0;
  bool conjugate = false;  // use the conjugate of the values (complex dtypes only)

  GPUOPT_DESCRIBE(data, stride, row_stride, conjugate)
};

struct Problem {
  Operand self, tensor;
  void* out = nullptr;  // [rows], contiguous
  DType dtype = DType::kFloat32;
  int64_t rows = 1;  // at least 1
  int64_t size = 1;  // values per row, at least 1
  // Blocks round their sums and add them to `out`, in any order: for one row of f16, bf16, f32 or
  // f64. `out` must be the first value in an aligned word of 4 bytes (8 for f64), since the whole
  // word is written.
  bool atomic = false;

  GPUOPT_DESCRIBE(self, tensor, out, dtype, rows, size, atomic)
};

namespace detail {

struct Blocks {
  // A block has x * y threads: y along each of x rows.
  int64_t x = 1, y = 1;
  int64_t rows_per_lane = 1;  // rows that a thread reads
  size_t shared_bytes = 0;
  int64_t tiles = 1;  // blocks that cover the rows; each has x * rows_per_lane rows
  // The units (vectors or values) of a row are dealt to `splits` blocks in groups. A group is as
  // many units as a block has in flight.
  int64_t splits = 1;

  int64_t count() const { return tiles * splits; }
};

// A path without the arguments that are the same on all paths.
struct Choice {
  Path path;
  Blocks blocks;
};

inline int64_t values_per_vec(const Problem& problem) {
  return kAccessBytes / static_cast<int64_t>(size_of(problem.dtype));
}

inline uintptr_t misalignment(const Operand& operand) {
  return reinterpret_cast<uintptr_t>(operand.data) % kAccessBytes;
}

// Chooses y so that a thread has about `unroll` units of a row, and x so that rows fill the block.
// At least `least` threads read a row, unless it has fewer units.
inline Blocks shape_block(const Problem& problem, int64_t units, int unroll, int64_t least) {
  Blocks blocks;
  const int64_t wanted = std::max(pow2_ceil(ceil_div<int64_t>(units, unroll)),
                                  std::min<int64_t>(pow2_ceil(units), least));
  blocks.y = std::min<int64_t>(wanted, kThreads);
  blocks.x = std::min<int64_t>(kThreads / blocks.y, pow2_ceil(problem.rows));
  // A block has at least one whole warp.
  if (blocks.x * blocks.y < kWarp) blocks.x = kWarp / blocks.y;
  blocks.tiles = ceil_div(problem.rows, blocks.x);
  return blocks;
}

inline void split(Blocks& blocks, const Device& device, int per_sm, int64_t units, int unroll) {
  const int64_t groups = ceil_div(units, blocks.y * unroll);
  const int64_t wanted = int64_t{device.sms} * per_sm;
  const int64_t most = std::min(wanted / blocks.tiles, groups);
  if (most > 1) blocks.splits = ceil_div(groups, ceil_div(groups, most));
}

// Blocks per SM if rows are split. Every block of an atomic sum makes one addition, and every
// addition rounds. So atomic sums have few blocks.
inline int blocks_per_sm(const Problem& problem, const Tuning& tuning) {
  return problem.atomic ? kBlocks : tuning.blocks;
}

inline Choice choose_line(const Problem& problem, const Device& device, const Tuning& tuning,
                          int64_t vecs) {
  LinePlan plan;
  Blocks blocks;
  plan.unroll = kVecUnroll;
  if (vecs <= tuning.unsplit) {
    blocks.y =
        std::clamp<int64_t>(pow2_ceil(ceil_div<int64_t>(vecs, kVecUnroll)), kWarp, 2 * kThreads);
    return {plan, blocks};
  }
  // One vector per thread, as long as the device holds a thread for every vector at once.
  if (vecs <= int64_t{device.sms} * kBlocks * kThreads) plan.unroll = 1;
  blocks.y = kThreads;
  // One large block per SM, because additions round: in bf16, 2^25 values lose 72% of the result
  // with 8 blocks of 256 threads, and 0.4% so.
  while (problem.atomic && blocks.y < kMostThreads &&
         vecs > int64_t{device.sms} * blocks.y * plan.unroll) {
    blocks.y *= 2;
  }
  split(blocks, device, problem.atomic ? 1 : tuning.blocks, vecs, plan.unroll);
  return {plan, blocks};
}

inline Choice choose_rows(const Problem& problem, const Device& device, const Tuning& tuning,
                          int64_t vecs, bool shifted) {
  const int unroll = shifted ? kShiftedUnroll : kVecUnroll;
  Blocks blocks = shape_block(problem, vecs, unroll, 4);
  if (vecs > tuning.unsplit) {
    split(blocks, device, blocks_per_sm(problem, tuning), vecs, unroll);
  }
  return {RowsPlan{.shifted = shifted}, blocks};
}

inline Choice choose_short_rows(const Problem& problem, int64_t vecs) {
  Blocks blocks;
  blocks.y = pow2_ceil(vecs);
  blocks.x = kThreads / blocks.y;
  blocks.rows_per_lane = kVecUnroll;
  blocks.tiles = ceil_div(problem.rows, blocks.x * blocks.rows_per_lane);
  return {ShortRowsPlan{}, blocks};
}

inline Choice choose_tile(const Problem& problem, const Tuning& tuning) {
  Blocks blocks;
  // At most 32 values per thread, and at most the 48 KB of shared memory of any launch.
  constexpr int64_t kShared = 48 << 10;
  const int64_t row_bytes = 2 * problem.size * static_cast<int64_t>(size_of(problem.dtype));
  blocks.y = pow2_ceil(
      std::max(ceil_div<int64_t>(problem.size, 32), ceil_div(kThreads * row_bytes, kShared)));
  blocks.x = kThreads / blocks.y;
  // Enough rows per tile that every tile begins at an aligned vector.
  const int64_t least = std::max<int64_t>(1, values_per_vec(problem) / blocks.x);
  blocks.rows_per_lane =
      std::clamp<int64_t>(tuning.tile_bytes / (blocks.x * row_bytes) / least, 1, 16) * least;
  const int64_t rows = blocks.x * blocks.rows_per_lane;
  blocks.tiles = ceil_div(problem.rows, rows);
  blocks.shared_bytes = static_cast<size_t>(rows * row_bytes);
  return {TilePlan{}, blocks};
}

inline Choice choose_values(const Problem& problem, const Device& device, const Tuning& tuning) {
  const auto item = static_cast<int64_t>(size_of(problem.dtype));
  const int unroll = item >= 8 ? kWideUnroll : kValueUnroll;
  // The memory traffic of one more thread that reads a and b elements away from its neighbour: at
  // most a sector of 32 bytes per operand.
  const auto cost = [item](int64_t a, int64_t b) {
    return std::min<int64_t>(a * item, 32) + std::min<int64_t>(b * item, 32);
  };
  ValuesPlan plan;
  Blocks blocks;
  plan.args.rows_first =
      problem.rows > 1 && cost(problem.self.row_stride, problem.tensor.row_stride) <
                              cost(problem.self.stride, problem.tensor.stride);
  if (plan.args.rows_first) {
    // Two values of 2 bytes are read as one word if all words are aligned.
    const auto has_pairs = [](const Operand& operand) {
      return operand.row_stride == 1 && operand.stride % 2 == 0 && misalignment(operand) % 4 == 0;
    };
    if (item == 2 && problem.rows % 2 == 0 && has_pairs(problem.self) &&
        has_pairs(problem.tensor)) {
      blocks.rows_per_lane = 2;
    }
    const int64_t lanes = problem.rows / blocks.rows_per_lane;
    blocks.x = std::min<int64_t>(kWarp, pow2_ceil(lanes));
    blocks.y =
        std::min<int64_t>(kThreads / blocks.x, pow2_ceil(ceil_div<int64_t>(problem.size, unroll)));
    blocks.x = std::max(blocks.x, kWarp / blocks.y);
    // An SM holds at most 32 blocks. Blocks of one warp would fill only half of its 64 warps, so
    // blocks grow while there are enough rows. (Not measured.)
    while (2 * blocks.x * blocks.y <= kThreads &&
           ceil_div(lanes, 2 * blocks.x) >= int64_t{32} * device.sms) {
      blocks.x *= 2;
    }
    blocks.tiles = ceil_div(lanes, blocks.x);
  } else {
    blocks = shape_block(problem, problem.size, unroll, 1);
  }
  const bool is_long = problem.size > tuning.unsplit;
  // A warp's load of values far apart occupies its SM for 32 cycles, so blocks of one long row are
  // spread over all SMs. (Each atomic addition of a block rounds.)
  while (is_long && blocks.x == 1 && blocks.y > kWarp && !problem.atomic &&
         blocks.tiles * ceil_div(problem.size, blocks.y * unroll) < device.sms) {
    blocks.y /= 2;
  }
  // Neighbouring rows of few blocks are split whatever their size. (575,1536) in bf16 has 18
  // blocks: unsplit 21 us, split 4.4 us (H200).
  const bool leaves_sms = plan.args.rows_first && 2 * blocks.tiles <= device.sms;
  if (is_long || leaves_sms) {
    split(blocks, device, blocks_per_sm(problem, tuning), problem.size, unroll);
  }
  return {plan, blocks};
}

inline Choice choose(const Problem& problem, const Device& device, const Tuning& tuning) {
  const Operand &self = problem.self, &tensor = problem.tensor;
  const int64_t values = values_per_vec(problem), vecs = problem.size / values;
  const bool contiguous = problem.size == 1 || (self.stride == 1 && tensor.stride == 1);
  const bool one_row = problem.rows == 1;
  const bool same_shift = misalignment(self) == misalignment(tensor) &&
                          (one_row || (self.row_stride - tensor.row_stride) % values == 0);
  const bool aligned =
      same_shift && misalignment(self) == 0 && (one_row || self.row_stride % values == 0);
  const auto follows = [&](const Operand& operand) {
    return (operand.row_stride == problem.size || operand.row_stride == 0) &&
           misalignment(operand) == 0;
  };
  const bool back_to_back = contiguous && !one_row && follows(self) && follows(tensor);
  const bool whole_vecs = aligned && problem.size % values == 0;
  const int64_t row_bytes = problem.size * static_cast<int64_t>(size_of(problem.dtype));
  if (contiguous && aligned && one_row) return choose_line(problem, device, tuning, vecs);
  // On path "rows", a thread would have too few vectors in flight.
  if (contiguous && whole_vecs && vecs <= kVecUnroll) return choose_short_rows(problem, vecs);
  if (back_to_back && !whole_vecs && row_bytes <= tuning.tile_row_bytes) {
    return choose_tile(problem, tuning);
  }
  if (contiguous && (whole_vecs || vecs >= 4)) {
    return choose_rows(problem, device, tuning, vecs, !same_shift);
  }
  return choose_values(problem, device, tuning);
}

inline void set_rows(LineArgs& args, const Problem& problem, const Blocks&) {
  const int64_t values = values_per_vec(problem);
  args.vecs = problem.size / values;
  args.tail = static_cast<uint32_t>(problem.size % values);
}
inline void set_rows(Args& args, const Problem& problem, const Blocks& blocks) {
  args.self_stride = problem.self.stride;
  args.tensor_stride = problem.tensor.stride;
  args.self_row_stride = problem.self.row_stride;
  args.tensor_row_stride = problem.tensor.row_stride;
  args.rows = problem.rows;
  args.size = problem.size;
  args.splits = divide_by(blocks.splits);
  args.x = static_cast<uint32_t>(blocks.x);
  args.y = static_cast<uint32_t>(blocks.y);
  args.rows_per_lane = static_cast<uint32_t>(blocks.rows_per_lane);
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

}  // namespace detail

// The order of additions depends only on the problem and the device.
inline Plan make_plan(const Problem& problem, const Device& device,
                      const Tuning& tuning = limits<Tuning>()) {
  auto [path, blocks] = detail::choose(problem, device, tuning);
  if (blocks.count() > tuning.launch_blocks) {
    Problem first, second;
    detail::halve(problem, first, second);
    Plan plan = make_plan(first, device, tuning), *last = &plan;
    while (last->rest) last = last->rest.get();
    last->rest = std::make_unique<Plan>(make_plan(second, device, tuning));
    return plan;
  }

  const bool is_split = blocks.splits > 1, has_sums = is_split && !problem.atomic;
  const size_t item = size_of(problem.dtype);
  std::visit(
      [&, &blocks = blocks](auto& taken) {
        taken.args.self = problem.self.data;
        taken.args.tensor = problem.tensor.data;
        taken.args.to = has_sums ? nullptr : problem.out;
        taken.args.target = has_sums   ? Target::kWorkspace
                            : is_split ? Target::kAtomic
                                       : Target::kOut;
        taken.args.conjugate_self = problem.self.conjugate != problem.tensor.conjugate;
        taken.args.conjugate_out = problem.tensor.conjugate;
        detail::set_rows(taken.args, problem, blocks);
      },
      path);
  Plan plan{problem.dtype, std::move(path)};
  plan.launch = {static_cast<unsigned>(blocks.count()), static_cast<unsigned>(blocks.x * blocks.y),
                 blocks.shared_bytes, /*use_pdl=*/true};
  if (is_split && problem.atomic) plan.zeroed = problem.out;
  if (has_sums) {
    const auto threads = std::clamp<int64_t>(pow2_ceil(blocks.splits), kWarp, kFinishThreads);
    plan.finish = {static_cast<size_t>(problem.rows * blocks.splits) * sum_bytes(item),
                   problem.out,
                   static_cast<uint32_t>(blocks.splits),
                   problem.tensor.conjugate,
                   {static_cast<unsigned>(problem.rows), static_cast<unsigned>(threads), 0,
                    /*use_pdl=*/true}};
  }
  return plan;
}

// ---------------------------------------------------------------- Descriptions

template <typename F>
void describe(const LineArgs& args, F&& f) {
  f("vecs", args.vecs);
  f("tail", args.tail);
}
template <typename F>
void describe(const Args& args, F&& f) {
  f("rows", args.rows);
  f("size", args.size);
  f("x", args.x);
  f("y", args.y);
  f("rows_per_lane", args.rows_per_lane);
  f("splits", args.splits);
  f("rows_first", args.rows_first);
}
template <typename F>
void describe(const FinishPlan& plan, F&& f) {
  f("sums_bytes", plan.sums_bytes);
  f("out", plan.out);
  f("splits", plan.splits);
  f("launch", plan.launch);
}
// Without the further rows of plan.rest.
template <typename F>
void describe(const Plan& plan, F&& f) {
  std::visit(
      [&](const auto& path) {
        f("path", path.kName);
        f("self", path.args.self);
        f("tensor", path.args.tensor);
        f("to", path.args.to);
        f("target", path.args.target);
        f("conjugate_self", path.args.conjugate_self);
        f("conjugate_out", path.args.conjugate_out);
        describe(path.args, f);
        if constexpr (requires { path.unroll; }) f("unroll", path.unroll);
        if constexpr (requires { path.shifted; }) f("shifted", path.shifted);
      },
      plan.path);
  f("launch", plan.launch);
  f("zeroed", plan.zeroed);
  f("finish", plan.finish);
}

}  // namespace gpuopt::dot
