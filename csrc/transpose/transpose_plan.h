// Sizes and strides of a batch of matrices -> how they are cut into tiles. Plain host C++: tests run it without a GPU.
#pragma once

#include <cstdint>

#include "common/index.h"

namespace gpuopt::transpose {

constexpr int kMaxBatchDims = 4;

// (..., rows, columns) that becomes a contiguous (..., columns, rows). Strides in elements, none of them negative.
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

constexpr int kThreads = 256;
constexpr int64_t kAccessBytes = 16;

// Of elements of 1, 2, 4 or 8 bytes: rows of 128 bytes and more on both sides. A thread of a block moves four packs of 16 bytes in
// and four out, and eight blocks of 16 KB are on a multiprocessor. Neither size of tile nor of block is measured yet.
constexpr int tile_rows(int64_t item) { return item <= 2 ? 128 : 64; }
constexpr int tile_columns(int64_t item) { return item == 1 ? 128 : item == 8 ? 32 : 64; }

struct Plan {
  bool tiles =
      false;  // else the problem is one for the element-wise engine, which copies any strides
  bool aligned = false;  // every row of the input and of the output is made of whole packs
  int64_t row_tiles = 0;
  int64_t column_tiles = 0;
  int64_t matrices = 1;
  int64_t blocks = 0;
};

// Smaller matrices leave most of a tile empty. Where the engine is faster is not measured yet.
constexpr int64_t kLeastSize = 32;

inline Plan make_plan(const Problem& p) {
  Plan plan;
  for (int d = 0; d < p.batch_dims; ++d) plan.matrices *= p.batch_sizes[d];
  if (p.item > 8 || p.column_stride != 1 || p.rows < kLeastSize || p.columns < kLeastSize) {
    return plan;
  }
  const int64_t values = kAccessBytes / p.item;
  plan.aligned = reinterpret_cast<uintptr_t>(p.in) % kAccessBytes == 0 && p.rows % values == 0 &&
                 p.columns % values == 0 && p.row_stride % values == 0;
  for (int d = 0; d < p.batch_dims; ++d) {
    plan.aligned = plan.aligned && p.batch_strides[d] % values == 0;
  }
  // Rows of the output that begin inside of a pack are cut up to a pack later than others.
  const int64_t rows = p.rows + (plan.aligned ? 0 : values - 1);
  plan.row_tiles = ceil_div<int64_t>(rows, tile_rows(p.item));
  plan.column_tiles = ceil_div<int64_t>(p.columns, tile_columns(p.item));
  plan.blocks = plan.matrices * plan.row_tiles * plan.column_tiles;
  plan.tiles = plan.blocks <= kMaxIndex32;  // no memory holds more
  return plan;
}

}  // namespace gpuopt::transpose
