// Problems to launches of sparse products. Plain host C++.
//
// Groups of neighbouring threads walk the entries of a row. The threads of a group stand beside each
// other along the features; if the group is wider than a dense row, it takes several entries at
// once. A row of more than `piece` entries is cut where the number of the entry is a multiple of
// `piece`. Warps of their own compute its pieces, and a second kernel adds them in order. So a
// result depends on the problem and the GPU alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/describe.h"
#include "common/device.h"
#include "common/index.h"
#include "common/launch_shape.h"
#include "spmm/spmm_problem.h"

namespace gpuopt::spmm {

constexpr int kThreads = 256;

struct Tuning {
  int64_t piece = 128;        // entries of a piece for each entry that a group takes at once
  int64_t most_pieces = 65536;
  int elements = 4;           // features of a thread that does not load vectors
};

// The rows of a matrix, divided among groups.
struct Walk {
  Matrix matrix;
  int64_t piece = 0;          // entries; a longer row is cut
  uint32_t pieces = 0;        // windows of `piece` entries, if rows may be longer; else 0
  uint32_t row_lanes = 1;     // threads of a row, a power of two of at most a warp
  uint32_t entry_lanes = 1;   // of them, side by side along the features of an entry
  uint32_t piece_blocks = 0;  // blocks that compute pieces; they come first
  uint32_t row_blocks = 0;    // blocks that compute rows
  uint32_t tiles = 1;         // of features
};

template <typename F>
void describe(const Walk& walk, F&& f) {
  f("piece", walk.piece);
  f("pieces", walk.pieces);
  f("row_lanes", walk.row_lanes);
  f("entry_lanes", walk.entry_lanes);
  f("tiles", walk.tiles);
}

// How a thread reads features.
enum class Access : uint8_t {
  kVector,   // 16 bytes
  kSpread,   // Tuning::elements features, as far apart as the threads of an entry
  kSingle,   // one
};

struct ReduceArgs {
  Walk walk;
  ReduceProblem problem;
  void* parts = nullptr;      // [batches][2 * pieces][features]: sums of pieces; set by launch()
  void* part_args = nullptr;  // the same of entries, of a maximum or minimum
};

struct ReducePlan {
  Access access = Access::kSingle;
  ReduceArgs args;
  LaunchShape shape;
  size_t part_bytes = 0;      // of all pieces
  size_t part_arg_bytes = 0;
  LaunchShape finish;         // of the kernel that adds pieces; no blocks if there are none
};

struct ProductArgs {
  Walk walk;
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
  MapArgs args;
  LaunchShape shape;
};

inline int64_t floor_power(int64_t n) { return n < 2 ? 1 : pow2_ceil(n / 2 + 1); }

// The threads of a row, of a matrix whose rows have this many entries in the mean. An entry takes
// `lanes` of them.
inline uint32_t row_lanes(const Matrix& matrix, uint32_t lanes) {
  const int64_t mean = matrix.rows == 0 ? 1 : ceil_div(matrix.entries, matrix.rows);
  const int64_t at_once = std::min<int64_t>(kWarp / lanes, pow2_ceil(ceil_div<int64_t>(mean, 2)));
  return static_cast<uint32_t>(lanes * at_once);
}

// Divides rows among groups. `elements` features of a thread, `lanes` threads for an entry.
inline Walk walk(const Matrix& matrix, int64_t features, int elements, int64_t batches,
                 const Tuning& tuning) {
  Walk walk;
  walk.matrix = matrix;
  walk.entry_lanes = static_cast<uint32_t>(
      std::min<int64_t>(kWarp, pow2_ceil(ceil_div<int64_t>(features, elements))));
  walk.row_lanes = row_lanes(matrix, walk.entry_lanes);
  walk.tiles =
      static_cast<uint32_t>(ceil_div<int64_t>(features, int64_t{walk.entry_lanes} * elements));
  const int64_t at_once = walk.row_lanes / walk.entry_lanes;
  walk.piece = std::max(tuning.piece * at_once, ceil_div(matrix.entries, tuning.most_pieces));
  const int64_t longest = matrix.longest < 0 ? matrix.entries : matrix.longest;
  if (longest > walk.piece) {
    walk.pieces = static_cast<uint32_t>(ceil_div(matrix.entries, walk.piece));
    walk.piece_blocks = ceil_div<uint32_t>(2 * walk.pieces, kThreads / kWarp);
  }
  walk.row_blocks =
      static_cast<uint32_t>(ceil_div<int64_t>(matrix.rows, kThreads / walk.row_lanes));
  return walk;
}

inline LaunchShape shape_of(const Walk& walk, int64_t batches) {
  LaunchShape shape;
  shape.threads = kThreads;
  shape.blocks = static_cast<unsigned>((walk.piece_blocks + int64_t{walk.row_blocks}) * walk.tiles *
                                       batches);
  return shape;
}

}  // namespace gpuopt::spmm
