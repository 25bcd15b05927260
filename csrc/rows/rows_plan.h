// Problems to launches. Plain host C++.
//
// A group is some neighbouring threads, which stand side by side along the features of a dense row.
// All groups have equally many rows and entries together: they walk windows of the path of Merrill
// and Garland, "Merge-based parallel sparse matrix-vector multiplication" (2016). Of a row that
// does not end in the window where it begins, each window gives a part, and a second kernel adds
// the parts in order. Windows depend on the sizes of the problem alone, and so do the roundings of
// a sum.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <optional>

#include "common/describe.h"
#include "common/index.h"
#include "common/launch_shape.h"
#include "common/strided.h"
#include "common/tuning.h"
#include "rows/rows_problem.h"
#include "rows/rows_tiles.h"

namespace gpuopt::rows {

constexpr int kSpread = 4;  // features of a thread with Access::kSpread
constexpr int kFewThreads = 512;
// Of few entries: of a row that a thread has, before all threads of the block share the row, and
// that a thread then has in rows of mean length, at most.
constexpr int kLongFew = 16, kMostFew = 4;
constexpr int kFewBlocks = 128;  // that few rows are divided among, if there are so many rows
constexpr int kFinishThreads = 256;
constexpr int kFinishBlocks = kFinishThreads / kWarp;  // whose parts a block adds

// Measured on an H200: csrc/rows/MEASUREMENTS.md.
struct Tuning {
  int64_t few_warps = 2112;  // that a small matrix needs, before its windows are longer
  int64_t window = 64;       // of a larger matrix, at least
  int64_t shortest = 8;      // window, at least
  // A bound of memory, for all tiles and batches together: each window may leave parts.
  int64_t most_warps = 101376;
  int64_t few_units = 1 << 18;  // loads of features, by rows and entries that one launch reduces
  TileTuning tiles;

  GPUOPT_DESCRIBE(few_warps, window, shortest, most_warps, few_units, tiles)
};

// How a thread reads features.
enum class Access : uint8_t {
  kVector,  // neighbours, 16 bytes
  kSpread,  // kSpread of them, as far apart as the threads of an entry
  kSingle,  // one
  kTile,    // one, from a tile of entries that its block has copied to shared memory
};

// The rows of a matrix, divided among groups.
struct Walk {
  Matrix matrix;
  int64_t window = 1;  // rows and entries together
  int64_t windows = 0;
  // Threads of a group: a power of two of at most a warp. With Access::kTile it is the block.
  uint32_t lanes = 1;
  uint32_t tiles = 1;   // of features
  uint32_t blocks = 0;  // for each tile and batch, of kThreads / lanes neighbouring windows
  // Access::kTile, and few entries: entries of a row that neighbouring threads read at once.
  uint32_t team = 1;
};

template <typename F>
void describe(const Walk& walk, F&& f) {
  f("window", walk.window);
  f("windows", walk.windows);
  f("lanes", walk.lanes);
  f("tiles", walk.tiles);
  f("blocks_per_tile", walk.blocks);
  f("team", walk.team);
}

struct ReduceArgs {
  Walk walk;
  ReduceProblem problem;
  uint32_t finish_blocks = 0;  // that add parts, for each tile and batch
  uint32_t finish_tiles = 0;   // of features
};

struct ReducePlan {
  Access access = Access::kSingle;
  bool is_few = false;  // one launch, whose blocks have `window` rows each
  ReduceArgs args;
  LaunchShape shape;
  size_t part_bytes = 0;  // [batches][blocks][2][features]: of the row before, and of the last
  LaunchShape finish;     // of the kernel that adds parts
};

template <typename F>
void describe(const ReducePlan& plan, F&& f) {
  f("access", plan.access);
  f("is_few", plan.is_few);
  describe(plan.args.walk, f);
  f("batches", plan.args.problem.batches);
  f("dense", plan.args.problem.dense.data);
  f("out", plan.args.problem.out.data);
  f("arg", plan.args.problem.arg);
  f("selected", plan.args.problem.selected);
  f("shape", plan.shape);
  f("part_bytes", plan.part_bytes);
  f("finish_blocks", plan.args.finish_blocks);
  f("finish_tiles", plan.args.finish_tiles);
  f("finish", plan.finish);
}

struct MapArgs {
  Walk walk;
  MapProblem problem;
  FastDiv by_features;  // Access::kTile
};

struct MapPlan {
  Access access = Access::kSingle;
  MapArgs args;
  LaunchShape shape;
  std::optional<ReducePlan> statistics;  // what softmax and its gradient need of each row
};

template <typename F>
void describe(const MapPlan& plan, F&& f) {
  f("access", plan.access);
  describe(plan.args.walk, f);
  f("dtype", plan.args.problem.dtype);
  f("features", plan.args.problem.features);
  f("shape", plan.shape);
  f("statistics", plan.statistics);
}

// ---------------------------------------------------------------- limits

constexpr int64_t kMostColumns = int64_t{1} << 32;  // also entries, where `entry` numbers them
constexpr int64_t kMostWindow = int64_t{1} << 30;
constexpr int64_t kMostSlices = int64_t{1} << 30;  // of a warp's features, in all batches

// Why a problem can't be planned, or null.
inline const char* refusal(const Matrix& matrix, int64_t features) {
  if (matrix.index != nullptr && matrix.columns > kMostColumns) return "at most 2^32 columns";
  if (matrix.index != nullptr && matrix.columns == 0) return "a column for each entry";
  if (matrix.entry != nullptr && matrix.entries > kMostColumns) return "at most 2^32 entries";
  if (!matrix.is_long && matrix.rows > kMaxIndex32) return "fewer than 2^31 rows with int32";
  if (features > kMaxIndex32) return "fewer than 2^31 features";
  return nullptr;
}

// Whether one launch has enough blocks for the problem.
inline bool fits(const ReduceProblem& problem) {
  const int64_t path = problem.matrix.rows + problem.matrix.entries;
  const int64_t windows = ceil_div<int64_t>(path, kMostWindow);
  return problem.batches <=
         kMostSlices / std::max<int64_t>(windows * ceil_div<int64_t>(problem.features, kWarp), 1);
}

// Splits the batches of a problem that doesn't fit, see common/parts.h.
inline void halve(const ReduceProblem& problem, ReduceProblem& first, ReduceProblem& second) {
  const DType number = problem.matrix.is_long ? DType::kInt64 : DType::kInt32;
  const int64_t half = problem.batches / 2;
  first = second = problem;
  first.batches = half;
  second.batches = problem.batches - half;
  second.dense.data = moved(problem.dense.data, half * problem.dense.batch, problem.dtype);
  second.out.data = moved(problem.out.data, half * problem.out.batch, problem.dtype);
  second.arg = moved(problem.arg, half * problem.matrix.rows * problem.features, number);
  second.selected =
      moved(problem.selected, half * problem.matrix.columns * problem.features, number);
}

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

// Divides rows among groups. An entry has `features` features. A thread reads `elements` of them.
inline Walk walk(const Matrix& matrix, int64_t features, int elements, int64_t batches,
                 const Tuning& tuning) {
  Walk walk;
  walk.matrix = matrix;
  walk.lanes = static_cast<uint32_t>(
      std::min<int64_t>(kWarp, pow2_ceil(ceil_div<int64_t>(features, elements))));
  walk.tiles = static_cast<uint32_t>(ceil_div<int64_t>(features, int64_t{walk.lanes} * elements));
  const int64_t path = matrix.rows + matrix.entries;
  const int64_t groups = kWarp / walk.lanes;  // of a warp
  const int64_t outer = std::max<int64_t>(walk.tiles * batches, 1);
  const int64_t most = std::max<int64_t>(tuning.most_warps * groups / outer, 1);
  // Wide groups read more at once, so they need longer windows to have as many reads in flight.
  const int64_t window = std::max<int64_t>(tuning.window, 4 * walk.lanes);
  const int64_t shortest = std::max<int64_t>(tuning.shortest, walk.lanes / 2);
  walk.window =
      std::max({path / most, std::min(window, path / (tuning.few_warps * groups)), shortest});
  walk.window = std::min(walk.window, kMostWindow);
  walk.windows = ceil_div(path, walk.window);
  walk.blocks = static_cast<uint32_t>(ceil_div<int64_t>(walk.windows, kThreads / walk.lanes));
  return walk;
}

// Divides rows among blocks, which walk tiles.
inline Walk walk(const Matrix& matrix, const Tiles& tiles) {
  Walk walk;
  walk.matrix = matrix;
  walk.lanes = kThreads;
  walk.window = tiles.window;
  walk.windows = ceil_div(matrix.rows + matrix.entries, tiles.window);
  walk.blocks = static_cast<uint32_t>(walk.windows);
  walk.team = tiles.team;
  return walk;
}

// Divides few rows among blocks. Each row has a team of threads, which have four entries each if
// the row has mean length. If most rows are long, a block has one. Neighbouring rows are in
// different blocks: they may all be long.
inline Walk walk_few(const ReduceProblem& problem, int elements) {
  const Matrix& matrix = problem.matrix;
  Walk walk;
  walk.matrix = matrix;
  const int64_t units = ceil_div<int64_t>(problem.features, elements);
  walk.lanes = static_cast<uint32_t>(std::min<int64_t>(kWarp, pow2_ceil(units)));
  walk.tiles = static_cast<uint32_t>(ceil_div<int64_t>(units, walk.lanes));
  const int64_t mean = ceil_div(matrix.entries, std::max<int64_t>(matrix.rows, 1));
  const int64_t most = kWarp / walk.lanes;
  walk.team = static_cast<uint32_t>(std::clamp<int64_t>(pow2_ceil(mean) / 4, 1, most));
  walk.window = mean > kLongFew * most
                    ? 1
                    : std::clamp<int64_t>(matrix.rows / kFewBlocks, 1,
                                          kFewThreads / (walk.lanes * walk.team));
  walk.windows = ceil_div(matrix.rows, walk.window);
  // An odd number, because rows whose numbers differ by a power of two may all be long.
  walk.blocks = static_cast<uint32_t>(walk.windows | 1);
  return walk;
}

inline LaunchShape shape_of(const Walk& walk, int64_t batches) {
  LaunchShape shape;
  shape.threads = kThreads;
  shape.use_pdl = true;
  shape.blocks = static_cast<unsigned>(int64_t{walk.blocks} * walk.tiles * batches);
  return shape;
}

// ---------------------------------------------------------------- plans

// Whether one launch is the way to reduce so few entries. The threads of a block must not be alone
// with many entries of a row.
inline bool is_few(const ReduceProblem& problem, const Walk& few, int elements,
                   const Tuning& tuning) {
  const Matrix& matrix = problem.matrix;
  const int64_t units = ceil_div<int64_t>(problem.features, elements) * problem.batches;
  return problem.selected == nullptr &&
         matrix.rows + matrix.entries <= tuning.few_units / std::max<int64_t>(units, 1) &&
         matrix.entries <= matrix.rows * kMostFew * (kFewThreads / few.lanes);
}

// The bytes of what a part holds of a feature.
inline size_t state_bytes(Reduce reduce, DType dtype) {
  const size_t number = std::max<size_t>(size_of(dtype), 4);
  if (reduce == Reduce::kMax || reduce == Reduce::kMin) return 16;  // a number and an entry
  return reduce == Reduce::kLogSum ? 2 * number : number;
}

// The parts of rows that cross blocks, and the kernel that adds them. A row has `features` states.
template <typename Plan>
void plan_parts(Plan& plan, int64_t features, int64_t batches, size_t state_bytes) {
  const int64_t blocks = plan.args.walk.blocks;
  if (blocks <= 1) return;
  plan.part_bytes = static_cast<size_t>(2 * blocks * batches * features) * state_bytes;
  plan.finish.threads = kFinishThreads;
  plan.finish.use_pdl = true;
  plan.args.finish_blocks = static_cast<uint32_t>(ceil_div<int64_t>(blocks, kFinishBlocks));
  plan.args.finish_tiles = static_cast<uint32_t>(ceil_div<int64_t>(features, kWarp * kSpread));
  plan.finish.blocks =
      static_cast<unsigned>(int64_t{plan.args.finish_blocks} * plan.args.finish_tiles * batches);
}

inline ReducePlan plan(const ReduceProblem& problem, const Tuning& tuning = limits<Tuning>()) {
  ReducePlan plan;
  const int vector = elements_of(Access::kVector, problem.dtype);
  const bool whole_heads =
      problem.value == nullptr || problem.features / problem.heads % vector == 0;
  const bool is_simple = problem.selected == nullptr && whole_heads &&
                         problem.reduce < Reduce::kProd && problem.dtype >= DType::kFloat16;
  plan.args.problem = problem;
  const bool has_vectors =
      is_simple && is_aligned({problem.dense, problem.out}, problem.features, problem.dtype);
  plan.access = has_vectors ? Access::kVector : Access::kSingle;
  const int elements = elements_of(plan.access, problem.dtype);
  if (const Walk few = walk_few(problem, elements); is_few(problem, few, elements, tuning)) {
    plan.is_few = true;
    plan.args.walk = few;
    plan.shape = shape_of(few, problem.batches);
    plan.shape.threads = kFewThreads;
    return plan;
  }
  if (is_tiled(problem, tuning.tiles)) {
    plan.access = Access::kTile;
    plan.args.walk = walk(problem.matrix, tiles_of(problem, tuning.few_warps, tuning.tiles));
  } else {
    if (!has_vectors) plan.access = narrow_access(problem.features);
    plan.args.walk = walk(problem.matrix, problem.features, elements_of(plan.access, problem.dtype),
                          problem.batches, tuning);
  }
  plan.shape = shape_of(plan.args.walk, problem.batches);
  plan_parts(plan, problem.features, problem.batches, state_bytes(problem.reduce, problem.dtype));
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

inline MapPlan plan(const MapProblem& problem, const Tuning& tuning = limits<Tuning>()) {
  MapPlan plan;
  plan.args.problem = problem;
  MapProblem& map = plan.args.problem;
  const Rows out{map.out, map.features, 0};
  if (map.map == Map::kCopy) {  // only bytes are moved, by the widest aligned type
    const auto size = static_cast<int64_t>(size_of(map.dtype));
    const uint64_t bits = reinterpret_cast<uintptr_t>(map.out) |
                          reinterpret_cast<uintptr_t>(map.row.data) |
                          static_cast<uint64_t>(map.features * size | map.row.row * size | 8);
    const int64_t bytes = int64_t{1} << std::countr_zero(bits);
    map.dtype = bytes == 8   ? DType::kInt64
                : bytes == 4 ? DType::kInt32
                : bytes == 2 ? DType::kInt16
                             : DType::kUInt8;
    map.features = map.features * size / bytes;
    map.row.row = map.row.row * size / bytes;
  }
  if (is_tiled(map, tuning.tiles)) {
    plan.access = Access::kTile;
    plan.args.walk = walk(map.matrix, tiles_of(map, tuning.few_warps, tuning.tiles));
    plan.args.by_features = divide_by(map.features);
  } else {
    plan.access = map.map == Map::kCopy && is_aligned({map.row, out}, map.features, map.dtype)
                      ? Access::kVector
                      : narrow_access(map.features);
    plan.args.walk = walk(map.matrix, map.features, elements_of(plan.access, map.dtype), 1, tuning);
  }
  plan.shape = shape_of(plan.args.walk, 1);
  if (map.map == Map::kSoftmax || map.map == Map::kSoftmaxGradient) {
    plan.statistics = gpuopt::rows::plan(statistics_of(map), tuning);
  }
  return plan;
}

}  // namespace gpuopt::rows
