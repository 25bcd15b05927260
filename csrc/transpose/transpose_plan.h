// Sizes and strides of a batch of matrices -> which kernel takes them and how they are cut. Plain
// host C++: tests run it without a GPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "common/index.h"

namespace gpuopt::transpose {

constexpr int kMaxBatchDims = 4;

// (..., rows, columns) that becomes a contiguous (..., columns, rows). Strides in elements, none of
// them negative.
struct Problem {
  const void* in = nullptr;
  void* out = nullptr;
  int64_t item = 4;  // bytes of an element, which are moved and not looked at
  int64_t rows = 1;
  int64_t columns = 1;
  int64_t row_stride = 1;
  int64_t column_stride = 1;
  int batch_dims = 0;
  int64_t batch_sizes[kMaxBatchDims] = {};  // innermost first
  int64_t batch_strides[kMaxBatchDims] = {};
};

enum class Path : uint8_t {
  kEngine,  // the element-wise engine, which copies any strides
  kTiles,   // tiles of large matrices, of elements of up to 8 bytes
  // Strips: several small matrices, or whole columns or rows of matrices with few rows or columns.
  kStrips,
};

// Not swept but for tiles of 128 x 128 of 2-byte elements (README): threads, the sizes of tiles and
// strips, and the limits between them.
constexpr int kThreads = 256;
constexpr int64_t kSectorBytes = 32;  // what memory writes at once
constexpr int64_t kLineBytes = 128;

// Of elements of 1, 2, 4 or 8 bytes: rows of 128 bytes and more on both sides.
constexpr int tile_rows(int64_t item) { return item <= 2 ? 128 : 64; }
constexpr int tile_columns(int64_t item) { return item == 1 ? 128 : item == 8 ? 32 : 64; }

// Matrices of fewer rows or columns leave too much of a tile empty.
constexpr int64_t kLeastTile = 64;

// Of strips, in elements.
constexpr int64_t kMostColumnStride = 4;

// After so many vectors of a strip there is a vector of room, or after more.
constexpr int64_t kLeastRoom = 8;

// Of a strip; the less where there would be too few strips for all SMs.
constexpr int64_t kStripBytes = 16 << 10, kSmallStripBytes = 4 << 10;
constexpr int64_t kManyBytes = 8 << 20;

struct Plan {
  Path path = Path::kEngine;
  // kTiles: every row of the input and of the output is made of whole vectors.
  bool aligned = false;
  int64_t row_tiles = 0, column_tiles = 0;
  int64_t matrices = 1;
  int64_t blocks = 0;
  // kStrips: so many matrices, rows and columns of each, and bytes of an access.
  int64_t strip_matrices = 1, strip_rows = 0, strip_columns = 0;
  int64_t in_bytes = 0, out_bytes = 0;
  int room_shift = 0;  // a vector of room after 2^room_shift elements
  // The strip is one contiguous run, of the input or of the output.
  bool in_flat = false, out_flat = false;
};

namespace detail {

// The widest access, of 16 or 4 bytes or an element, that divides every one of the sizes.
inline int64_t access_bytes(int64_t item, uint64_t sizes) {
  if (sizes % kAccessBytes == 0) return kAccessBytes;
  return sizes % 4 == 0 && item < 4 ? 4 : item;
}

inline void plan_tiles(Plan& plan, const Problem& p) {
  const int64_t values = kAccessBytes / p.item;
  plan.aligned = reinterpret_cast<uintptr_t>(p.in) % kAccessBytes == 0 && p.rows % values == 0 &&
                 p.columns % values == 0 && p.row_stride % values == 0;
  for (int d = 0; d < p.batch_dims; ++d) {
    plan.aligned = plan.aligned && p.batch_strides[d] % values == 0;
  }
  // Rows of the output that begin inside of a sector are cut up to a sector later than others.
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
  // So many rows or columns make the other side's runs whole lines.
  const int64_t line = kLineBytes / item;
  const auto as_many = [&](int64_t others) {
    return std::max<int64_t>(most / (others * item) / line, 1) * line;
  };
  if (matrix <= most) {
    plan.strip_matrices = std::min(plan.matrices, most / matrix);
    // Every strip begins at a vector, if it can be.
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
  const bool dense = p.column_stride == 1 && p.row_stride == p.columns;
  plan.in_flat = dense && whole_rows &&
                 (m == 1 || (p.batch_dims == 1 && p.batch_strides[0] == p.rows * p.columns));
  plan.out_flat = whole_columns && (whole_rows || m == 1);

  // Where runs begin, and how long they are.
  uint64_t in = reinterpret_cast<uintptr_t>(p.in);
  uint64_t out = static_cast<uint64_t>(matrix);
  for (int d = 0; d < p.batch_dims; ++d) {
    // Of several matrices each strip's first one counts.
    in |= static_cast<uint64_t>(p.batch_strides[d] * (plan.in_flat && d == 0 ? m : 1) * item);
  }
  if (plan.in_flat) {
    in |= static_cast<uint64_t>(whole_columns ? 0 : r * p.columns * item);
  } else {
    in |= static_cast<uint64_t>((c | p.columns | p.row_stride) * item);
  }
  plan.in_bytes = p.column_stride == 1 ? access_bytes(item, in) : item;
  if (plan.out_flat) {
    out = static_cast<uint64_t>(matrix * m) |
          static_cast<uint64_t>(whole_rows ? 0 : c * p.rows * item);
  } else {
    out |= static_cast<uint64_t>((r | p.rows) * item);
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

inline Plan make_plan(const Problem& p, int64_t least_tile = kLeastTile) {
  Plan plan;
  for (int d = 0; d < p.batch_dims; ++d) plan.matrices *= p.batch_sizes[d];
  // A copy, one that turns other dimensions, or one of elements that hardly share sectors.
  if (p.rows == 1 || p.columns == 1 || p.column_stride >= p.row_stride ||
      p.column_stride > kMostColumnStride) {
    return plan;
  }
  for (int d = 0; d < p.batch_dims; ++d) {
    if (p.batch_strides[d] != 0 && p.batch_strides[d] < p.column_stride) return plan;
  }
  const bool large = p.rows >= least_tile && p.columns >= least_tile;
  if (p.item > 8 || !large) {
    detail::plan_strips(plan, p);
  } else if (p.column_stride == 1) {
    detail::plan_tiles(plan, p);
  }
  if (std::max(plan.blocks, plan.matrices) > kMaxIndex32) plan.path = Path::kEngine;
  return plan;
}

}  // namespace gpuopt::transpose
