// The arguments of the element-wise kernels, and the index arithmetic that kernels, plans and tests
// share. Plain C++.
#pragma once

#include <cstdint>

#include "common/dtype.h"
#include "common/index.h"

namespace gpuopt::elementwise {

// ATen's limit for CUDA operands, counted after dimensions have been merged.
constexpr int kMaxDims = 25;
// Dimensions of one launch. Problems of more are split, because copying arguments is part of the
// time of a small problem: dimensions of three operands take 24 bytes each.
constexpr int kKernelDims = 6;

// The threads of a block, measured on an H200 with mul (microseconds, fp32 / bf16; L2 flushed):
//   dense, 2^25:  128 threads x 1 vector 98.1 / 52.7, x 2 98.5 / 52.1, x 4 99.0 / 52.8;
//                 256 x 1 98.4 / 53.0, 512 x 1 98.8 / 53.1, 1024 x 1 98.5 / 53.0
constexpr int kThreads = 128;
constexpr int kTileThreads = 256;  // not swept
// Vectors of a thread where all operands are one run. Grids that overlap others are faster with
// two. x * 2.5 in fp32 (us on an H200, one and two vectors; 2026-11-28):
//   not overlapped  2^20 values 3.83, 3.82   2^22 10.07, 10.08   2^28 506, 510
//   overlapped      2^20 values 3.17, 3.13   2^22 11.09,  9.43   2^28 636, 510
constexpr int kThreadVecs = 2;

// Operands that are one contiguous, aligned run of `numel` values each, in the same order.
template <int kOperands>
struct VectorArgs {
  void* data[kOperands];
  int64_t numel;
};

// Operands with strides, in elements. Counts and offsets fit 32 bits: larger problems are split.
template <int kOperands>
struct StridedArgs {
  void* data[kOperands];
  DType dtypes[kOperands];
  bool linear[kOperands];  // element i of the iteration space is at data + i
  DType dtype;
  int num_dims;
  uint32_t numel;
  // One array per operand: with an array of dimensions, packed_kernel needs 34 registers for two
  // f32 inputs, not 32, and an SM holds 12 of its blocks, not 16.
  FastDiv sizes[kKernelDims];
  uint32_t strides[kOperands][kKernelDims];
};

// How the kernel of rows reads its inputs.
enum class Access : uint8_t {
  kAligned,    // one type, every row of every input aligned to 16 bytes
  kUnaligned,  // one type, any alignment
  kConverted,  // mixed types, every vector aligned to its size (at most 16 bytes)
};

// A tile in shared memory, for values of `item` bytes. Packed tiles are square and accessed in
// vectors. Others are accessed value by value. They have as many columns j as the problem, up to a
// square, and the fewer they have, the more rows i.
struct TileShape {
  int values;  // of a vector
  int side_i, side_j;
  int pitch;  // from row to row
  int bytes;

  constexpr TileShape(int item, bool packed, int64_t size_j)
      // Single bytes move in vectors of 8: unpacking 16 of them would need too many registers.
      : values(!packed     ? 1
               : item == 1 ? 8
                           : kAccessBytes / item),
        side_i(item == 2 && packed ? 128
               : item <= 4         ? 64
                                   : 32),
        side_j(side_i),
        pitch(side_i) {
    if (!packed) {
      side_j = size_j < side_j ? static_cast<int>(size_j) : side_j;
      while (side_i * 2 <= kTileThreads && side_i * side_j * 2 <= tile_values(item)) side_i *= 2;
      // A column is read without bank conflicts if rows are an odd number of words apart.
      const int word = item < 4 ? 4 / item : 1;
      pitch = ((side_j + word - 1) / word | 1) * word;
    }
    bytes = side_i * pitch * item;
  }

  // The most values of a tile that is accessed value by value.
  static constexpr int tile_values(int item) { return item <= 4 ? 64 * 64 : 32 * 32; }
};

// Tiles are numbered in groups of kTileGroup along j. The blocks in flight then cover a square of
// tiles, and each operand is accessed in runs of several tiles. (The size of a group is not swept.)
constexpr int kTileGroup = 16;
struct TileGrid {
  FastDiv plane;        // tiles in a plane of i and j
  FastDiv group;        // tiles in a group
  FastDiv group_width;  // tiles of a group along j
  FastDiv last_width;   // tiles of a plane's last group along j
  uint32_t last_group;  // the index of a plane's last group
  uint32_t turned;      // bit k: input k goes through shared memory
  uint32_t packed;      // bit k: input k is read along i in aligned vectors, else value by value
  // Of tiles that are accessed value by value: the sides and the pitch of TileShape, and the rows
  // that a block reads at a time.
  FastDiv side_i, side_j, read_rows;
  uint32_t pitch;
};

template <int kOperands, typename F>
void describe(const VectorArgs<kOperands>& args, F&& f) {
  f("data", args.data);
  f("numel", args.numel);
}
template <int kOperands, typename F>
void describe(const StridedArgs<kOperands>& args, F&& f) {
  f("data", args.data);
  f("dtypes", args.dtypes);
  f("linear", args.linear);
  f("dtype", args.dtype);
  f("num_dims", args.num_dims);
  f("numel", args.numel);
  f("sizes", args.sizes);
  f("strides", args.strides);
}
template <typename F>
void describe(const TileGrid& grid, F&& f) {
  f("plane", grid.plane);
  f("group", grid.group);
  f("group_width", grid.group_width);
  f("last_width", grid.last_width);
  f("last_group", grid.last_group);
  f("turned", grid.turned);
  f("packed", grid.packed);
  f("side_i", grid.side_i);
  f("side_j", grid.side_j);
  f("read_rows", grid.read_rows);
  f("pitch", grid.pitch);
}

// Rows that are split at 16-byte boundaries: the values [begin, end) of a row that lie in its
// vector number `vec`. The row's first value lies `shift` values past a boundary. The span may be
// empty. For shift 3, 4 values per vector and a row of 9 values:
//
//   16-byte boundaries   |            |            |            |
//   values               |          0 | 1  2  3  4 | 5  6  7  8 |
//   vec                        0            1            2
struct RowSpan {
  uint32_t begin;
  uint32_t end;
};
GPUOPT_HOST_DEVICE RowSpan row_span(uint32_t vec, uint32_t shift, uint32_t values,
                                    uint32_t row_size) {
  const uint32_t from = vec * values, to = from + values;
  const uint32_t begin = from > shift ? from - shift : 0;
  const uint32_t end = to - shift < row_size ? to - shift : row_size;
  return {begin < end ? begin : end, end};
}

// Vectors that run on from row to row: the offsets of an operand's values, one after another.
// step() goes from row to row, and at most once into the next plane (dimensions 0 and 1), without
// branches.
struct RowWalk {
  uint32_t stride, row_stride;
  uint32_t row_size;
  uint32_t left;        // values left in this row, the current one included
  uint32_t rows_left;   // rows left in this plane, the current one included
  uint32_t row;         // the offset of this row's first value
  uint32_t offset;      // the offset of the current value
  uint32_t next_plane;  // the offset of the next plane's first value

  GPUOPT_HOST_DEVICE void step() {
    const bool last = --left == 0;
    rows_left -= last;
    row = last ? (rows_left == 0 ? next_plane : row + row_stride) : row;
    offset = last ? row : offset + stride;
    left = last ? row_size : left;
  }
};

}  // namespace gpuopt::elementwise
