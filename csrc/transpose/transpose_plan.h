// Plans a transposition: chooses, from sizes, strides and alignment, the kernel and the tiles or
// strips that its blocks handle. This is plain host C++, so tests run it without a GPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "common/describe.h"
#include "common/launch_shape.h"
#include "common/tuning.h"
#include "transpose/transpose_args.h"

namespace gpuopt::transpose {

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

  GPUOPT_DESCRIBE(in, out, item, rows, columns, row_stride, column_stride, batch_dims, batch_sizes,
                  batch_strides)
};

enum class Path : uint8_t {
  kEngine,  // the element-wise engine, which copies any strides value by value
  kTiles,   // large matrices of elements of up to 8 bytes: a block transposes a tile
  // Small, narrow or short matrices: a block transposes several matrices, or whole rows or columns.
  kStrips,
};

constexpr int64_t kLineBytes = 128;

// Matrices of fewer rows or columns would leave too much of a tile empty.
constexpr int64_t kLeastTile = 64;

// Limits between paths. Tests lower them, to reach every path with small problems.
struct Tuning {
  int64_t tile = kLeastTile;  // not swept
  // The fewest elements for unaligned tiles. Below, the engine is faster. Tiles and the engine take
  // on an H200 (us): (13,97,385) bf16 5.4 and 4.4, (18049,347) bf16 9.3 and 12.1,
  // (47,629,2544) f32 160 and 207.
  int64_t unaligned_tiles = 1 << 22;

  GPUOPT_DESCRIBE(tile, unaligned_tiles)
};

// Strips are small if the whole input has less than kManyBytes, because large strips would be too
// few for all SMs.
constexpr int64_t kSmallStripBytes = 4 << 10, kManyBytes = 8 << 20;

struct Plan {
  Path path = Path::kEngine;  // for which a plan holds nothing else
  int64_t item = 0;           // bytes of an element
  // kTiles: every row of the input and of the output consists of whole, aligned vectors.
  bool aligned = false;
  int64_t in_bytes = 0, out_bytes = 0;  // kStrips: bytes of an access
  Args args{};
  LaunchShape shape;
};

template <typename F>
void describe(const Plan& plan, F&& f) {
  f("path", plan.path);
  f("aligned", plan.aligned);
  f("in_bytes", plan.in_bytes);
  f("out_bytes", plan.out_bytes);
  f("args", plan.args);
  f("shape", plan.shape);
}

namespace detail {

// The widest access (16 bytes, 4 bytes or one element) that divides every size and address whose
// bits are in `sizes`.
inline int64_t access_bytes(int64_t item, uint64_t sizes) {
  if (sizes % kAccessBytes == 0) return kAccessBytes;
  return sizes % 4 == 0 && item < 4 ? 4 : item;
}

inline uint64_t address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

inline int64_t matrices_of(const Problem& p) {
  int64_t matrices = 1;
  for (int d = 0; d < p.batch_dims; ++d) matrices *= p.batch_sizes[d];
  return matrices;
}

// Completes a plan, whose blocks handle this many parts of the batch, of the rows and of the
// columns. More blocks than a launch may have are left to the engine.
inline Plan in_blocks(Plan plan, const Problem& p, int64_t batch_parts, int64_t row_tiles,
                      int64_t column_tiles) {
  const int64_t matrices = matrices_of(p), blocks = batch_parts * row_tiles * column_tiles;
  if (std::max(blocks, matrices) > kMaxIndex32) return {};
  plan.item = p.item;
  plan.shape = {static_cast<unsigned>(blocks), kThreads, 0, /*use_pdl=*/true};
  Args& args = plan.args;
  args.in = p.in;
  args.out = p.out;
  args.rows = p.rows;
  args.columns = p.columns;
  args.row_stride = p.row_stride;
  int64_t last = (p.rows - 1) * p.row_stride + p.columns - 1;
  args.batch.dims = p.batch_dims;
  for (int d = 0; d < p.batch_dims; ++d) {
    args.batch.sizes[d] = divide_by(p.batch_sizes[d]);
    args.batch.strides[d] = p.batch_strides[d];
    last += (p.batch_sizes[d] - 1) * p.batch_strides[d];
  }
  args.in_end = static_cast<const char*>(p.in) + (last + 1) * p.item;
  args.row_tiles = divide_by(row_tiles);
  args.column_tiles = divide_by(column_tiles);
  args.matrices = static_cast<uint32_t>(matrices);
  return plan;
}

inline Plan plan_tiles(const Problem& p) {
  Plan plan{Path::kTiles};
  const int64_t values = kAccessBytes / p.item;
  plan.aligned = (address(p.in) | address(p.out)) % kAccessBytes == 0 && p.rows % values == 0 &&
                 p.columns % values == 0 && p.row_stride % values == 0;
  for (int d = 0; d < p.batch_dims; ++d) {
    plan.aligned = plan.aligned && p.batch_strides[d] % values == 0;
  }
  // A tile begins where a row of the output crosses a sector. Rows that begin inside a sector may
  // need almost one sector more.
  const int64_t rows = p.rows + (plan.aligned ? 0 : kSectorBytes / p.item - 1);
  return in_blocks(plan, p, matrices_of(p), ceil_div<int64_t>(rows, tile_rows(p.item)),
                   ceil_div<int64_t>(p.columns, tile_columns(p.item)));
}

inline Plan plan_strips(const Problem& p) {
  const int64_t item = p.item, matrix = p.rows * p.columns * item, matrices = matrices_of(p);
  const int64_t most = matrices * matrix >= kManyBytes ? kStripBytes : kSmallStripBytes;
  int64_t m = 1, r = p.rows, c = p.columns;  // matrices, rows and columns of a strip
  // The number of rows or columns of a strip whose other side has `others` elements: a multiple of
  // a line, so that runs on the other side are whole lines.
  const int64_t line = kLineBytes / item;
  const auto as_many = [&](int64_t others) {
    return std::max<int64_t>(most / (others * item) / line, 1) * line;
  };
  if (matrix <= most) {
    m = std::min(matrices, most / matrix);
    // Every strip begins at a 16-byte boundary if possible.
    const int64_t unit = kAccessBytes / std::gcd(kAccessBytes, matrix);
    if (m > unit) m -= m % unit;
  } else if (p.rows >= kLeastTile && p.columns >= kLeastTile) {
    r = c = 32;
  } else if (p.columns <= p.rows) {
    r = std::min(as_many(p.columns), p.rows);
  } else {
    c = std::min(as_many(p.rows), p.columns);
  }
  const bool whole_rows = c == p.columns, whole_columns = r == p.rows;
  const bool dense = p.row_stride == p.columns;
  Plan plan{Path::kStrips};
  Args& args = plan.args;
  args.in_flat = dense && whole_rows &&
                 (m == 1 || (p.batch_dims == 1 && p.batch_strides[0] == p.rows * p.columns));
  args.out_flat = whole_columns && (whole_rows || m == 1);

  // `in` and `out` collect the bits of all offsets at which runs begin, and of their lengths.
  uint64_t in = address(p.in), out = address(p.out);
  for (int d = 0; d < p.batch_dims; ++d) {
    // In a flat input only the first matrix of each strip begins a run.
    in |= static_cast<uint64_t>(p.batch_strides[d] * (args.in_flat && d == 0 ? m : 1) * item);
  }
  if (args.in_flat) {
    in |= static_cast<uint64_t>(whole_columns ? 0 : r * p.columns * item);
  } else {
    in |= static_cast<uint64_t>((c | p.columns | p.row_stride) * item);
  }
  plan.in_bytes = access_bytes(item, in);
  if (args.out_flat) {
    out |= static_cast<uint64_t>(matrix * m) |
           static_cast<uint64_t>(whole_rows ? 0 : c * p.rows * item);
  } else {
    out |= static_cast<uint64_t>(matrix) | static_cast<uint64_t>((r | p.rows) * item);
  }
  plan.out_bytes = access_bytes(item, out);
  const auto power = std::max(c & -c, kLeastRoom) * kAccessBytes / item;
  while ((int64_t{1} << args.room_shift) < power) ++args.room_shift;
  args.strip_matrices = static_cast<uint32_t>(m);
  args.strip_rows = divide_by(r);
  args.strip_columns = divide_by(c);
  return in_blocks(plan, p, ceil_div(matrices, m), ceil_div(p.rows, r), ceil_div(p.columns, c));
}

}  // namespace detail

inline Plan make_plan(const Problem& p, const Tuning& tuning = limits<Tuning>()) {
  // The engine handles a single row or column, columns that are rows in memory (a transposed view),
  // and columns apart.
  if (p.rows == 1 || p.columns == 1 || p.column_stride != 1 || p.row_stride <= 1) return {};
  if (p.item <= 8 && p.rows >= tuning.tile && p.columns >= tuning.tile) {
    const Plan plan = detail::plan_tiles(p);
    const int64_t elements = detail::matrices_of(p) * p.rows * p.columns;
    return plan.aligned || elements >= tuning.unaligned_tiles ? plan : Plan();
  }
  // Strips that are accessed by elements on one side are slow: batches of odd sizes, such as
  // (103, 49) in bf16, take 1.3 to 2.9 times ATen's time, and 0.8 to 1.0 times in the engine.
  // Strips and the engine take on an H200 (us): (2049171, 29) and (1398101, 12) in bf16 143 and 96,
  // 47 and 34; (699050, 12) in fp32 30.6 and 25.1. Strips of whole matrices are faster all the
  // same.
  const Plan plan = detail::plan_strips(p);
  const bool vectors = plan.in_bytes == kAccessBytes && plan.out_bytes == kAccessBytes;
  const bool whole = plan.args.in_flat && plan.args.out_flat && plan.in_bytes >= 4;
  return vectors || whole ? plan : Plan();
}

}  // namespace gpuopt::transpose
