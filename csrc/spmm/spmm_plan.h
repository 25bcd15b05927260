// Problems to launches of sparse products. Plain host C++.
//
// A group is some neighbouring threads, which stand side by side along the features of a dense row.
// It walks the entries of a few whole rows. Rows are divided so that groups have about equally many
// rows and entries together: windows of the path of Merrill and Garland, "Merge-based parallel
// sparse matrix-vector multiplication" (2016). A row of more than `piece` entries is cut where the
// number of an entry is a multiple of `piece`; a second kernel adds its pieces. So the order of a
// sum depends on the problem alone.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <optional>

#include "common/describe.h"
#include "common/device.h"
#include "common/index.h"
#include "common/launch_shape.h"
#include "spmm/spmm_problem.h"

namespace gpuopt::spmm {

constexpr int kThreads = 128;
constexpr int kSpread = 4;  // features of a thread with Access::kSpread

struct Tuning {
  int64_t window = 64;  // rows and entries of a group, on a GPU that is full
  int64_t groups = 32;  // warps that fill a multiprocessor
  int64_t piece = 128;  // entries, at least
  int64_t most_pieces = 131072;
};

// How a thread reads features.
enum class Access : uint8_t {
  kVector,  // neighbours, 16 bytes
  kSpread,  // kSpread of them, as far apart as the threads of an entry
  kSingle,  // one
};

// The rows of a matrix, divided among groups.
struct Walk {
  Matrix matrix;
  int64_t window = 1;         // rows and entries together
  int64_t windows = 0;
  int64_t piece = 0;          // entries; a longer row is cut
  uint32_t pieces = 0;        // of all entries, or 0 if no row is longer
  uint32_t lanes = 1;         // threads of a group, a power of two of at most a warp
  uint32_t tiles = 1;         // of features
  uint32_t piece_blocks = 0;  // blocks that compute pieces; they come first
  uint32_t row_blocks = 0;    // blocks that compute rows
};

template <typename F>
void describe(const Walk& walk, F&& f) {
  f("window", walk.window);
  f("windows", walk.windows);
  f("piece", walk.piece);
  f("pieces", walk.pieces);
  f("lanes", walk.lanes);
  f("tiles", walk.tiles);
}

struct ReduceArgs {
  Walk walk;
  ReduceProblem problem;
};

struct ReducePlan {
  Access access = Access::kSingle;
  ReduceArgs args;
  LaunchShape shape;
  size_t part_bytes = 0;  // of the sums of all pieces: [batches][2 * pieces][features]
  LaunchShape finish;     // of the kernel that adds them
};

struct ProductArgs {
  Walk walk;  // a tile is a head
  ProductProblem problem;
};

struct ProductPlan {
  Access access = Access::kSingle;
  ProductArgs args;
  LaunchShape shape;
};

struct MapArgs {
  Walk walk;
  MapProblem problem;
};

struct MapPlan {
  Access access = Access::kSingle;
  MapArgs args;
  LaunchShape shape;
  std::optional<ReducePlan> statistics;  // what softmax and its gradient need of each row
};

// ---------------------------------------------------------------- how rows are walked

inline int elements_of(Access access, DType dtype) {
  if (access == Access::kVector) return kAccessBytes / static_cast<int>(size_of(dtype));
  return access == Access::kSpread ? kSpread : 1;
}

// Whether all rows are aligned to a vector.
inline bool is_aligned(std::initializer_list<Rows> all, int64_t features, DType dtype) {
  const auto size = static_cast<int64_t>(size_of(dtype));
  uint64_t bits = static_cast<uint64_t>(features * size);
  for (const Rows& rows : all) {
    bits |= reinterpret_cast<uintptr_t>(rows.data) | static_cast<uint64_t>(rows.row * size) |
            static_cast<uint64_t>(rows.batch * size);
  }
  return bits % kAccessBytes == 0;
}

inline Access narrow_access(int64_t features) {
  return features > kWarp ? Access::kSpread : Access::kSingle;
}

// Divides rows among groups. An entry has `features` features, of which a thread takes `elements`.
inline Walk walk(const Matrix& matrix, int64_t features, int elements, const Device& device,
                 const Tuning& tuning) {
  Walk walk;
  walk.matrix = matrix;
  walk.lanes = static_cast<uint32_t>(
      std::min<int64_t>(kWarp, pow2_ceil(ceil_div<int64_t>(features, elements))));
  walk.tiles = static_cast<uint32_t>(ceil_div<int64_t>(features, int64_t{walk.lanes} * elements));
  const int64_t groups = device.sms * tuning.groups * (kWarp / walk.lanes);
  const int64_t all = matrix.rows + matrix.entries;
  walk.window = std::clamp<int64_t>(all / groups, std::min<int64_t>(8, tuning.window), tuning.window);
  walk.windows = ceil_div(all + 1, walk.window);
  // At least a window, so that only the last row of a window can be cut.
  walk.piece = std::max({tuning.piece, walk.window, ceil_div(matrix.entries, tuning.most_pieces)});
  const int64_t in_block = kThreads / walk.lanes;
  if ((matrix.longest < 0 ? matrix.entries : matrix.longest) > walk.piece) {
    walk.pieces = static_cast<uint32_t>(ceil_div(matrix.entries, walk.piece));
    walk.piece_blocks = static_cast<uint32_t>(ceil_div<int64_t>(2 * walk.pieces, in_block));
  }
  walk.row_blocks = static_cast<uint32_t>(ceil_div(walk.windows, in_block));
  return walk;
}

inline LaunchShape shape_of(const Walk& walk, int64_t batches) {
  LaunchShape shape;
  shape.threads = kThreads;
  shape.blocks = static_cast<unsigned>((int64_t{walk.piece_blocks} + walk.row_blocks) * walk.tiles *
                                       batches);
  return shape;
}

// ---------------------------------------------------------------- plans

// The bytes of the result of a piece and a feature.
inline size_t state_bytes(Reduce reduce, DType dtype) {
  const size_t number = std::max<size_t>(size_of(dtype), 4);
  const bool is_pair = reduce >= Reduce::kMax && reduce != Reduce::kProd;
  return is_pair ? 2 * number : number;
}

inline ReducePlan plan(const ReduceProblem& problem, const Device& device, const Tuning& tuning = {}) {
  ReducePlan plan;
  const int vector = elements_of(Access::kVector, problem.dtype);
  const bool whole_heads =
      problem.value == nullptr || problem.features / problem.heads % vector == 0;
  const bool is_simple = problem.selected == nullptr && !problem.wide_out && whole_heads &&
                         problem.reduce < Reduce::kProd && problem.dtype >= DType::kFloat16;
  plan.access = is_simple && is_aligned({problem.dense, problem.out}, problem.features,
                                        problem.dtype)
                    ? Access::kVector
                    : narrow_access(problem.features);
  plan.args.problem = problem;
  plan.args.walk = walk(problem.matrix, problem.features,
                        elements_of(plan.access, problem.dtype), device, tuning);
  plan.shape = shape_of(plan.args.walk, problem.batches);
  const int64_t pieces = plan.args.walk.pieces;
  plan.part_bytes = static_cast<size_t>(2 * pieces * problem.batches * problem.features) *
                    state_bytes(problem.reduce, problem.dtype);
  plan.finish.threads = kThreads;
  plan.finish.blocks = static_cast<unsigned>(pieces * problem.batches);
  return plan;
}

inline ProductPlan plan(const ProductProblem& problem, const Device& device, const Tuning& tuning = {}) {
  ProductPlan plan;
  const int64_t features = problem.features / problem.heads;
  plan.access = is_aligned({problem.a, problem.b}, features, problem.dtype) ? Access::kVector
                                                                           : Access::kSingle;
  plan.args.problem = problem;
  plan.args.walk =
      walk(problem.matrix, features, elements_of(plan.access, problem.dtype), device, tuning);
  plan.args.walk.tiles = static_cast<uint32_t>(problem.heads);
  plan.shape = shape_of(plan.args.walk, 1);
  return plan;
}

// The sums over rows that softmax and its gradient need. launch() sets the address of the result.
inline ReduceProblem statistics_of(const MapProblem& map) {
  ReduceProblem problem;
  problem.matrix = map.matrix;
  problem.matrix.index = problem.matrix.entry = nullptr;
  problem.matrix.columns = map.matrix.entries;
  problem.dtype = map.dtype;
  problem.features = map.features;
  problem.dense = {const_cast<void*>(map.x), map.features, 0};
  problem.out.row = map.features;
  problem.wide_out = true;
  problem.reduce = Reduce::kLogSum;
  if (map.map == Map::kSoftmaxGradient) {
    problem.reduce = Reduce::kSum;
    problem.value = map.y;
    problem.heads = map.features;
  }
  return problem;
}

inline MapPlan plan(const MapProblem& problem, const Device& device, const Tuning& tuning = {}) {
  MapPlan plan;
  plan.args.problem = problem;
  MapProblem& map = plan.args.problem;
  const Rows out{map.out, map.features, 0};
  if (map.map == Map::kCopy) {  // only bytes are moved, in the largest units
    const auto size = static_cast<int64_t>(size_of(map.dtype));
    const uint64_t bits = reinterpret_cast<uintptr_t>(map.out) |
                          reinterpret_cast<uintptr_t>(map.row.data) |
                          static_cast<uint64_t>(map.features * size | map.row.row * size | 8);
    const int64_t unit = int64_t{1} << std::countr_zero(bits);
    map.dtype = unit == 8   ? DType::kInt64
                : unit == 4 ? DType::kInt32
                : unit == 2 ? DType::kInt16
                            : DType::kUInt8;
    map.features = map.features * size / unit;
    map.row.row = map.row.row * size / unit;
  }
  if (map.map == Map::kCopy && is_aligned({map.row, out}, map.features, map.dtype)) {
    plan.access = Access::kVector;
  } else {
    plan.access = narrow_access(map.features);
  }
  plan.args.walk = walk(map.matrix, map.features, elements_of(plan.access, map.dtype), device, tuning);
  plan.shape = shape_of(plan.args.walk, 1);
  if (map.map == Map::kSoftmax || map.map == Map::kSoftmaxGradient) {
    plan.statistics = gpuopt::spmm::plan(statistics_of(map), device, tuning);
  }
  return plan;
}

}  // namespace gpuopt::spmm
