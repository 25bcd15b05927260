// The arguments of the transposition kernels. Plain C++.
#pragma once

#include <cstdint>

#include "common/index.h"

namespace gpuopt::transpose {

constexpr int kMaxBatchDims = 4;

// The number of threads, and the sizes of tiles and strips, are not swept, with one exception
// (tile_columns).
constexpr int kThreads = 256;
constexpr int64_t kSectorBytes = 32;  // the unit of a memory write

// The rows and columns of a tile, for elements of 1, 2, 4 or 8 bytes. Tiles are at least 128 bytes
// wide on both sides. Tiles of 128 x 128 elements of 2 bytes are faster at 8191^2 (80.7 us) and
// 8192^2 (72.0 us), but slower at small sizes (256^2: 2.0 us, and 1.6 us with 128 x 64).
constexpr int tile_rows(int64_t item) { return item <= 2 ? 128 : 64; }
constexpr int tile_columns(int64_t item) { return item == 1 ? 128 : item == 8 ? 32 : 64; }

constexpr int64_t kStripBytes = 16 << 10;  // the most bytes of a strip
// A strip has a padding vector after this many vectors, or after a larger power of two.
constexpr int64_t kLeastRoom = 8;

// Dimensions of the batch.
struct Batch {
  int dims;
  FastDiv sizes[kMaxBatchDims];  // innermost first
  int64_t strides[kMaxBatchDims];
};

struct Args {
  const void* in;
  const void* in_end;  // one past the last element
  void* out;
  int64_t rows, columns, row_stride;
  Batch batch;
  FastDiv row_tiles, column_tiles;    // tiles or strips of a matrix
  FastDiv strip_rows, strip_columns;  // kStrips: rows and columns of a strip
  uint32_t strip_matrices, matrices;  // matrices of a strip (kStrips), matrices of the batch
  uint32_t room_shift;     // kStrips: a padding vector follows every 2^room_shift elements
  bool in_flat, out_flat;  // kStrips: a strip is one run of the input, of the output
};

template <typename F>
void describe(const Args& args, F&& f) {
  f("rows", args.rows);
  f("columns", args.columns);
  f("row_tiles", args.row_tiles);
  f("column_tiles", args.column_tiles);
  f("matrices", args.matrices);
  f("strip_rows", args.strip_rows);
  f("strip_columns", args.strip_columns);
  f("strip_matrices", args.strip_matrices);
  f("in_flat", args.in_flat);
  f("out_flat", args.out_flat);
}

}  // namespace gpuopt::transpose
