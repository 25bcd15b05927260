// Tiles of narrow rows: which problems are read in tiles, and how large these are. Plain host C++.
//
// A tile is the window of a block. Its entries are side by side in memory, and the block copies
// them to shared memory. The sizes of the problem decide, and no address.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/describe.h"
#include "common/dtype.h"
#include "common/index.h"
#include "rows/rows_problem.h"

namespace gpuopt::rows {

constexpr int kThreads = 128;  // of a block

constexpr int kTileBytes = 16384;  // of shared memory
constexpr int kTileSlack = 192;    // of these, for the alignment of all that is in a tile
constexpr int kTileBlocks = 8;     // of an SM, which limit the registers of a thread
constexpr int kLongRow = 32;       // entries of a thread. A warp shares a row that has more
constexpr int kBoundBytes = 2;     // of where a row of a tile begins, or of an entry's row

// csrc/rows/MEASUREMENTS.md
struct TileTuning {
  int64_t narrow_row = 64;    // bytes, at most, of dense rows that are reduced in tiles
  int64_t gathered = 1;       // features, at most, of dense rows that entries name
  int64_t narrow_map = 63;    // the same, of maps
  int64_t least_tile = 2048;  // bytes
  int64_t team_entries = 8;   // of a row of mean length, for each thread

  GPUOPT_DESCRIBE(narrow_row, gathered, narrow_map, least_tile, team_entries)
};

struct Tiles {
  int64_t window = 1;  // rows and entries together
  uint32_t team = 1;   // entries of a row that neighbouring threads read at once
};

// A row or an entry takes up to `item_bytes` in shared memory. An entry has `width` threads. A
// small matrix needs `few_warps`, before its tiles are larger.
inline Tiles tiles_of(const Matrix& matrix, int64_t item_bytes, int64_t width, int64_t few_warps,
                      const TileTuning& tuning) {
  Tiles tiles;
  const int64_t path = matrix.rows + matrix.entries;
  // A tile has two bounds more than rows, and also what belongs to the row before it.
  const int64_t most = (kTileBytes - kTileSlack) / item_bytes - 3;
  const int64_t least = std::max<int64_t>(tuning.least_tile / item_bytes, 1);
  tiles.window = std::min(std::max(path * (kThreads / kWarp) / few_warps, least), most);
  const int64_t whole = kWarp / width;  // entries of a warp
  const int64_t team = matrix.entries / std::max<int64_t>(tuning.team_entries * matrix.rows, 1);
  // If a warp has only one row, all of its threads share it.
  tiles.team = static_cast<uint32_t>(whole / (whole / std::clamp<int64_t>(team, 1, whole)));
  return tiles;
}

inline bool is_narrow(int64_t features, DType dtype, int64_t most_bytes) {
  return features * static_cast<int64_t>(size_of(dtype)) <= most_bytes;
}

// ---------------------------------------------------------------- reductions

// Rows that entries name are gathered into the tile. Each feature has a value of its own.
inline bool is_tiled(const ReduceProblem& problem, const TileTuning& tuning) {
  const bool is_plain = problem.value == nullptr ||
                        (problem.heads == problem.features && problem.reduce <= Reduce::kMean);
  const bool is_gather = problem.matrix.index != nullptr;
  // Statistics of softmax are not measured beyond 16 bytes.
  const int64_t most = problem.reduce == Reduce::kLogSum ? std::min<int64_t>(tuning.narrow_row, 16)
                                                         : tuning.narrow_row;
  return is_plain && problem.selected == nullptr && problem.batches == 1 &&
         (is_gather ? problem.features <= tuning.gathered
                    : problem.dense.row == problem.features &&
                          is_narrow(problem.features, problem.dtype, most));
}

inline Tiles tiles_of(const ReduceProblem& problem, int64_t few_warps, const TileTuning& tuning) {
  const auto size = static_cast<int64_t>(size_of(problem.dtype));
  const int64_t of_entry = problem.features * size * (problem.value == nullptr ? 1 : 2);
  return tiles_of(problem.matrix, std::max<int64_t>(of_entry, kBoundBytes), problem.features,
                  few_warps, tuning);
}

// ---------------------------------------------------------------- maps

inline bool is_tiled(const MapProblem& map, const TileTuning& tuning) {
  const bool reads_rows = map.map != Map::kSoftmax && map.map != Map::kSoftmaxGradient;
  return is_narrow(map.features, map.dtype, tuning.narrow_map) &&
         (!reads_rows || map.row.row == map.features);
}

inline Tiles tiles_of(const MapProblem& map, int64_t few_warps, const TileTuning& tuning) {
  const auto size = static_cast<int64_t>(size_of(map.dtype));
  const int64_t number = std::max<int64_t>(size, 4);  // of the compute type
  int64_t of_row = size, of_entry = 0;
  if (map.map == Map::kSelected) of_row += map.matrix.is_long ? 8 : 4;
  if (map.map == Map::kSoftmax) of_row = 2 * number, of_entry = size;
  if (map.map == Map::kSoftmaxGradient) of_row = number, of_entry = 2 * size;
  return tiles_of(map.matrix, kBoundBytes + map.features * std::max(of_row, of_entry), 1, few_warps,
                  tuning);
}

}  // namespace gpuopt::rows
