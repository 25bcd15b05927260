// Plans a transposition: chooses, from sizes, strides and alignment, the kernel and the tiles or
// strips that its blocks handle. This is plain host C++, so tests run it without a GPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "common/index.h"

namespace gpuopt::transpose {

constexpr int kMaxBatchDims = 4;

// A tensor (..., rows, columns) whose transpose is written as a contiguous (..., columns, rows).
// Strides are in elements, none of them negative. `in` and `out` are aligned to an element.
struct Problem {
  const void* in = nullptr;
  void* out = nullptr;
  int64_t item = 4;  // bytes of an element; elements are moved as bits
  int64_t rows = 1;
  int64_t columns = 1;
  int64_t row_stride = 1;
  int64_t column_stride = 1;
  int batch_dims = 0;
  int64_t batch_sizes[kMaxBatchDims] = {};  // innermost first
  int64_t batch_strides[kMaxBatchDims] = {};
};

enum class Path : uint8_t {
  kEngine,  // the element-wise engine, which copies any strides value by value
  kTiles,   // large matrices of elements of up to 8 bytes: a block transposes a tile
  // Small, narrow or short matrices: a block transposes several matrices, or whole rows or columns.
  kStrips,
};

// The number of threads, the sizes of tiles and strips, and the limits between the paths are not
// swept, with one exception (tile_columns).
constexpr int kThreads = 256;
constexpr int64_t kSectorBytes = 32;  // the unit of a memory write
constexpr int64_t kLineBytes = 128;

// The rows and columns of a tile, for elements of 1, 2, 4 or 8 bytes. Tiles are at least 128 bytes
// wide on both sides. Tiles of 128 x 128 elements of 2 bytes are faster at 8191^2 (80.7 us) and
// 8192^2 (72.0 us), but slower at small sizes (256^2: 2.0 us, and 1.6 us with 128 x 64).
constexpr int tile_rows(int64_t item) { return item <= 2 ? 128 : 64; }
constexpr int tile_columns(int64_t item) { return item == 1 ? 128 : item == 8 ? 32 : 64; }

// Matrices of fewer rows or columns would leave too much of a tile empty.
constexpr int64_t kLeastTile = 64;

// Limits between paths. The numbers of elements are measured on an H100
// (benchmarks/results/nvidia-h100-80gb-hbm3/general-path.jsonl). Tests lower them, to reach every
// path with small problems.
struct Limits {
  int64_t tile = kLeastTile;
  // The fewest elements for unaligned tiles, and for strips of a part of a matrix. Below, the
  // engine's general path is faster. part_strips = 0 allows all strips.
  int64_t unaligned_tiles = 1 << 16, part_strips = 1 << 18;
};

// A strip has a padding vector after this many vectors, or after a larger power of two.
constexpr int64_t kLeastRoom = 8;

// The most bytes of a strip. Strips are small if the whole input has less than kManyBytes, because
// large strips would be too few for all SMs.
constexpr int64_t kStripBytes = 16 << 10, kSmallStripBytes = 4 << 10;
constexpr int64_t kManyBytes = 8 << 20;

struct Plan {
  Path path = Path::kEngine;
  // kTiles: every row of the input and of the output consists of whole, aligned vectors.
  bool aligned = false;
  int64_t row_tiles = 0, column_tiles = 0;  // tiles or strips of a matrix
  int64_t matrices = 1;                     // matrices of the batch
  int64_t blocks = 0;
  // kStrips: the matrices of a strip, and the rows and columns that it has of each.
  int64_t strip_matrices = 1, strip_rows = 0, strip_columns = 0;
  int64_t in_bytes = 0, out_bytes = 0;  // kStrips: bytes of an access
  int room_shift = 0;  // kStrips: a padding vector follows every 2^room_shift elements
  // kStrips: the strip is one contiguous run of the input, of the output.
  bool in_flat = false, out_flat = false;
};

namespace detail {

// The widest access (16 bytes, 4 bytes or one element) that divides every size and address whose
// bits are in `sizes`.
inline int64_t access_bytes(int64_t item, uint64_t sizes) {
  if (sizes % kAccessBytes == 0) return kAccessBytes;
  return sizes % 4 == 0 && item < 4 ? 4 : item;
}

inline uint64_t address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

inline void plan_tiles(Plan& plan, const Problem& p) {
  const int64_t values = kAccessBytes / p.item;
  plan.aligned = (address(p.in) | address(p.out)) % kAccessBytes == 0 && p.rows % values == 0 &&
                 p.columns % values == 0 && p.row_stride % values == 0;
  for (int d = 0; d < p.batch_dims; ++d) {
    plan.aligned = plan.aligned && p.batch_strides[d] % values == 0;
  }
  // A tile begins where a row of the output crosses a sector. Rows that begin inside a sector may
  // need almost one sector more.
  const int64_t rows = p.rows + (plan.aligned ? 0 : kSectorBytes / p.item - 1);
  plan.row_tiles = ceil_div<int64_t>(rows, tile_rows(p.item));
  plan.column_tiles = ceil_div<int64_t>(p.columns, tile_columns(p.item));
  plan.blocks = plan.matrices * plan.row_tiles * plan.column_tiles;
  plan.path = Path::kTiles;
}

inline void plan_strips(Plan& plan, const Problem& p) {
  const int64_t item = p.item, matrix = p.rows * p.columns * item;
  const int64_t most = plan.matrices * matrix >= kManyBytes ? kStripBytes : kSmallStripBytes;
  plan.strip_rows = p.rows;
  plan.strip_columns = p.columns;
  // The number of rows or columns of a strip whose other side has `others` elements: a multiple of
  // a line, so that runs on the other side are whole lines.
  const int64_t line = kLineBytes / item;
  const auto as_many = [&](int64_t others) {
    return std::max<int64_t>(most / (others * item) / line, 1) * line;
  };
  if (matrix <= most) {
    plan.strip_matrices = std::min(plan.matrices, most / matrix);
    // Every strip begins at a 16-byte boundary if possible.
    const int64_t unit = kAccessBytes / std::gcd(kAccessBytes, matrix);
    if (plan.strip_matrices > unit) plan.strip_matrices -= plan.strip_matrices % unit;
  } else if (p.rows >= kLeastTile && p.columns >= kLeastTile) {
    plan.strip_rows = plan.strip_columns = 32;
  } else if (p.columns <= p.rows) {
    plan.strip_rows = std::min(as_many(p.columns), p.rows);
  } else {
    plan.strip_columns = std::min(as_many(p.rows), p.columns);
  }
  const int64_t m = plan.strip_matrices, r = plan.strip_rows, c = plan.strip_columns;
  const bool whole_rows = c == p.columns, whole_columns = r == p.rows;
  const bool dense = p.row_stride == p.columns;
  plan.in_flat = dense && whole_rows &&
                 (m == 1 || (p.batch_dims == 1 && p.batch_strides[0] == p.rows * p.columns));
  plan.out_flat = whole_columns && (whole_rows || m == 1);

  // `in` and `out` collect the bits of all offsets at which runs begin, and of their lengths.
  uint64_t in = address(p.in), out = address(p.out);
  for (int d = 0; d < p.batch_dims; ++d) {
    // In a flat input only the first matrix of each strip begins a run.
    in |= static_cast<uint64_t>(p.batch_strides[d] * (plan.in_flat && d == 0 ? m : 1) * item);
  }
  if (plan.in_flat) {
    in |= static_cast<uint64_t>(whole_columns ? 0 : r * p.columns * item);
  } else {
    in |= static_cast<uint64_t>((c | p.columns | p.row_stride) * item);
  }
  plan.in_bytes = access_bytes(item, in);
  if (plan.out_flat) {
    out |= static_cast<uint64_t>(matrix * m) |
           static_cast<uint64_t>(whole_rows ? 0 : c * p.rows * item);
  } else {
    out |= static_cast<uint64_t>(matrix) | static_cast<uint64_t>((r | p.rows) * item);
  }
  plan.out_bytes = access_bytes(item, out);
  const auto power = std::max(c & -c, kLeastRoom) * kAccessBytes / item;
  while ((int64_t{1} << plan.room_shift) < power) ++plan.room_shift;
  plan.row_tiles = ceil_div(p.rows, r);
  plan.column_tiles = ceil_div(p.columns, c);
  plan.blocks = ceil_div(plan.matrices, m) * plan.row_tiles * plan.column_tiles;
  plan.path = Path::kStrips;
}

}  // namespace detail

inline Plan make_plan(const Problem& p, const Limits& limits = {}) {
  Plan plan;
  for (int d = 0; d < p.batch_dims; ++d) plan.matrices *= p.batch_sizes[d];
  const int64_t elements = plan.matrices * p.rows * p.columns;
  // The engine handles a single row or column, columns that are rows in memory (a transposed view),
  // and columns apart.
  if (p.rows == 1 || p.columns == 1 || p.column_stride != 1 || p.row_stride <= 1) {
    return plan;
  }
  const bool large = p.rows >= limits.tile && p.columns >= limits.tile;
  if (p.item > 8 || !large) {
    detail::plan_strips(plan, p);
    if (p.item <= 8 && limits.part_strips > 0) {
      // Strips that are accessed by elements on one side are slow: batches of odd sizes, such as
      // (103, 49) in bf16, take 1.3 to 2.9 times ATen's time, and 0.8 to 1.0 times in the engine.
      // Strips of whole matrices are faster all the same, and so are aligned strips of matrices
      // that have many of them.
      const bool vectors = plan.in_bytes == kAccessBytes && plan.out_bytes == kAccessBytes;
      const bool whole = plan.in_flat && plan.out_flat && plan.in_bytes >= 4;
      const bool many = plan.matrices == 1 || p.rows * p.columns * p.item >= 4 * kStripBytes;
      const bool part = plan.in_bytes == kAccessBytes && many && elements >= limits.part_strips;
      if (!vectors && !whole && !part) return Plan();
    }
  } else {
    detail::plan_tiles(plan, p);
    if (!plan.aligned && elements < limits.unaligned_tiles) return Plan();
  }
  if (std::max(plan.blocks, plan.matrices) > kMaxIndex32) plan.path = Path::kEngine;
  return plan;
}

}  // namespace gpuopt::transpose
