// A tile of a matrix turned through shared memory (Ruetsch and Micikevicius, "Optimizing Matrix Transpose in CUDA", NVIDIA
// 2009), with accesses of 16 bytes on both sides whatever the alignment of rows.
#pragma once

#include "common/async.cuh"
#include "common/index.h"
#include "transpose/transpose_plan.h"

namespace gpuopt::transpose {

struct Args {
  const void* in;
  const void* in_end;  // behind the last element
  void* out;
  int64_t rows, columns, row_stride;
  FastDiv tiles;        // of a matrix
  FastDiv group;        // tiles in a group
  FastDiv group_width;  // of them side by side
  FastDiv last_width;   // the same for the last group of a matrix
  uint32_t last_group;
  int batch_dims;
  FastDiv batch_sizes[kMaxBatchDims];
  int64_t batch_strides[kMaxBatchDims];
};

// Tiles are numbered in groups of so many columns of tiles, so that blocks that run at a time read and write runs of several. As in
// the element-wise engine; not measured here yet.
constexpr int kGroupWidth = 16;

// Rows of packs. A row has one pack more where rows don't begin at a pack, and the tile a pack's rows more before it where those
// of the output don't. After every N rows there is a pack of room: 8 lanes that read a column for 8 neighbouring output packs
// are at rows N apart, and so in different banks.
template <typename T, bool kAligned>
struct Tile {
  static constexpr int N = kPackSize<T>;
  static constexpr int kRows = tile_rows(sizeof(T)), kColumns = tile_columns(sizeof(T));
  static constexpr int kBefore = kAligned ? 0 : N;
  static constexpr int kPacks = kColumns / N + (kAligned ? 0 : 1);
  static constexpr int kAllRows = kBefore + kRows;
  static constexpr int kSize = kAllRows * kPacks + kAllRows / N;

  static __device__ __forceinline__ int place(int row, int pack) {
    return row * kPacks + row / N + pack;
  }
};

// How many elements behind a pack's beginning an address lies.
template <typename T>
__device__ __forceinline__ int pack_shift(const T* address) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(address) / sizeof(T)) & (kPackSize<T> - 1);
}

// The pack at `from`, of which what lies outside of [first, end) is not touched.
template <typename T>
__device__ __forceinline__ void copy_inside(uint4* tile, const T* from, const T* first,
                                            const T* end) {
  if (from >= first && from + kPackSize<T> <= end) {
    copy_async<T, kPackSize<T>>(reinterpret_cast<T*>(tile), from);
    return;
  }
#pragma unroll
  for (int e = 0; e < kPackSize<T>; ++e) {
    if (from + e >= first && from + e < end) reinterpret_cast<T*>(tile)[e] = from[e];
  }
}

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kThreads) tiles_kernel(const __grid_constant__ Args args) {
  using Own = Tile<T, kAligned>;
  constexpr int N = Own::N, kStores = Own::kRows / N * Own::kColumns / kThreads;
  constexpr int kLoads = (Own::kAllRows * Own::kPacks + kThreads - 1) / kThreads;
  __shared__ uint4 tile[Own::kSize];

  uint32_t matrix = blockIdx.x;
  uint32_t group = args.tiles.divmod(matrix);
  uint32_t tile_row = args.group.divmod(group);
  const FastDiv width = group == args.last_group ? args.last_width : args.group_width;
  const int64_t j0 = int64_t{group * kGroupWidth + width.divmod(tile_row)} * Own::kColumns;
  const int64_t i0 = int64_t{tile_row} * Own::kRows - Own::kBefore;

  T* const out = static_cast<T*>(args.out) + int64_t{matrix} * args.rows * args.columns;
  const T* in = static_cast<const T*>(args.in);
  for (int d = 0; d < args.batch_dims; ++d) {
    in += args.batch_sizes[d].divmod(matrix) * args.batch_strides[d];
  }

#pragma unroll
  for (int s = 0; s < kLoads; ++s) {
    const int q = static_cast<int>(threadIdx.x) + s * kThreads;
    const int row = q / Own::kPacks, pack = q % Own::kPacks;
    const int64_t i = i0 + row;
    if constexpr (kAligned) {
      const int64_t j = j0 + pack * N;
      if (i >= args.rows || j >= args.columns) continue;
      copy_async<T, N>(reinterpret_cast<T*>(tile + Own::place(row, pack)),
                       in + i * args.row_stride + j);
    } else {
      if (row >= Own::kAllRows || i < 0 || i >= args.rows) continue;
      const T* const begin = in + i * args.row_stride;
      const int64_t j = j0 + pack * N - pack_shift(begin);
      if (j >= args.columns) continue;
      copy_inside(tile + Own::place(row, pack), begin + j, static_cast<const T*>(args.in),
                  static_cast<const T*>(args.in_end));
    }
  }
  wait_for_copies();
  __syncthreads();

  // Where rows begin in their packs: so much on with every row. i0 is a multiple of N.
  const int first_shift = pack_shift(in), step = static_cast<int>(args.row_stride);
  // 8 neighbouring threads write 8 packs of a row of the output, the next 8 those of the next row.
#pragma unroll
  for (int s = 0; s < kStores; ++s) {
    const int q = static_cast<int>(threadIdx.x) + s * kThreads;
    const int j = q / 8 % Own::kColumns, pack = q / (8 * Own::kColumns) * 8 + q % 8;
    if (j0 + j >= args.columns) continue;
    T* const to = out + (j0 + j) * args.rows;
    const int row = Own::kBefore + pack * N - (kAligned ? 0 : pack_shift(to));
    const int64_t i = i0 + row;
    Pack<T, N> values;
#pragma unroll
    for (int e = 0; e < N; ++e) {
      const int shift = kAligned ? 0 : (first_shift + (row + e) * step) & (N - 1);
      values.values[e] = reinterpret_cast<const T*>(tile + Own::place(row + e, 0))[shift + j];
    }
    if (kAligned ? i < args.rows : i >= 0 && i + N <= args.rows) {
      store_pack(to + i, values);
    } else if constexpr (!kAligned) {
#pragma unroll
      for (int e = 0; e < N; ++e) {
        if (i + e >= 0 && i + e < args.rows) to[i + e] = values.values[e];
      }
    }
  }
}

}  // namespace gpuopt::transpose
