// Shared memory, and the tiles of outputs of a kernel.
#pragma once

#include <cuda_runtime_api.h>
#include <vector_types.h>

// Dynamic shared memory. Swizzles of tensor maps repeat after 1024 bytes.
extern __shared__ __align__(1024) uint4 matmul_memory[];

namespace gpuopt::matmul {

// The first output of a tile.
struct Tile {
  int row, column;
};

// Tiles in the order of rows.
template <int kRows, int kColumns>
__device__ __forceinline__ Tile tile_of(int index, int n) {
  const int across = (n + kColumns - 1) / kColumns;
  return {index / across * kRows, index % across * kColumns};
}

// [persistent]
// The tiles of order_rows rows of tiles come column by column. The tiles that all SMs have at one
// time then form a rectangle, which reads fewer rows of A and columns of B than a strip.
__device__ __forceinline__ Tile tile_in_order(int index, int m, int n, int rows, int columns,
                                              int order_rows) {
  const int down = (m + rows - 1) / rows, across = (n + columns - 1) / columns;
  const int first = index / (order_rows * across) * order_rows,
            within = index % (order_rows * across);
  const int column_rows = min(order_rows, down - first);
  return {(first + within % column_rows) * rows, within / column_rows * columns};
}
// [persistent]

}  // namespace gpuopt::matmul
