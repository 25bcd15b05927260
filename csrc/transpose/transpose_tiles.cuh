// A tile of a matrix turned through shared memory (Ruetsch and Micikevicius, "Optimizing Matrix
// Transpose in CUDA", NVIDIA 2009), with accesses of 16 bytes on both sides whatever the alignment
// of rows.
#pragma once

#include "common/async.cuh"
#include "transpose/transpose_args.cuh"

namespace gpuopt::transpose {

// Rows of vectors. A row has one vector more where rows don't begin at a vector, and the tile a
// sector's rows more before it where those of the output don't begin at a sector. After every N
// rows there is a vector of room: 8 lanes that read a column for 8 neighbouring output vectors are
// at rows N apart, and so in different banks.
template <typename T, bool kAligned>
struct Tile {
  static constexpr int N = kVecSize<T>;
  static constexpr int kRows = tile_rows(sizeof(T)), kColumns = tile_columns(sizeof(T));
  static constexpr int kVecs = kColumns / N;           // of a row, and copied by so many lanes
  static constexpr int kLanesRows = kThreads / kVecs;  // rows that a block copies at a time
  static constexpr int kSector = kSectorBytes / sizeof(T);
  static constexpr int kBefore = kAligned ? 0 : kSector;     // rows
  static constexpr int kPitch = kVecs + (kAligned ? 0 : 1);  // vectors
  static constexpr int kAllRows = kBefore + kRows;
  static constexpr int kSize = kAllRows * kPitch + kAllRows / N;
  static constexpr int kCopies = ceil_div(kAllRows, kLanesRows);  // of a thread
  // Every thread's rows, and its columns, are so far apart that what is true of the alignment of
  // one is true of all.
  static_assert(kLanesRows % N == 0 && kThreads / 8 % kSector == 0 && kAllRows <= kThreads);

  static __device__ __forceinline__ int position(int row, int vec) {
    return row * kPitch + row / N + vec;
  }
};

// How many elements behind a vector's beginning an address lies.
template <typename T>
__device__ __forceinline__ int vec_shift(const T* address) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(address) / sizeof(T)) & (kVecSize<T> - 1);
}

// The vector at `from`, of which what lies outside of the tensor's memory is not touched.
template <typename T>
__device__ __forceinline__ void copy_inside(uint4* tile, const T* from, const Args& args) {
  const T* const first = static_cast<const T*>(args.in);
  const T* const end = static_cast<const T*>(args.in_end);
  if (from >= first && from + kVecSize<T> <= end) {
    copy_async<T, kVecSize<T>>(reinterpret_cast<T*>(tile), from);
    return;
  }
#pragma unroll
  for (int e = 0; e < kVecSize<T>; ++e) {
    if (from + e >= first && from + e < end) reinterpret_cast<T*>(tile)[e] = from[e];
  }
}

// Blocks are numbered down the rows first: those at work at a time write long runs of the output.
// (8192 x 8192 f32: 137 us; 144 along the columns first.)
template <typename T, bool kAligned>
__global__ void __launch_bounds__(kThreads) tiles_kernel(const __grid_constant__ Args args) {
  using Own = Tile<T, kAligned>;
  constexpr int N = Own::N;
  __shared__ uint4 tile[Own::kSize];

  uint32_t matrix = blockIdx.x;
  const int64_t i0 = int64_t{args.row_tiles.divmod(matrix)} * Own::kRows - Own::kBefore;
  const int64_t j0 = int64_t{args.column_tiles.divmod(matrix)} * Own::kColumns;
  // Of the tile: rows [first_row, end_row) and so many columns.
  const int first_row = i0 < 0 ? Own::kBefore : 0;
  const auto end_row = static_cast<int>(min(args.rows - i0, int64_t{Own::kAllRows}));
  const auto columns = static_cast<int>(min(args.columns - j0, int64_t{Own::kColumns}));
  const T* const in =
      static_cast<const T*>(args.in) + args.batch.offset(matrix) + i0 * args.row_stride + j0;
  // Where rows begin in their vectors: so much on with every row.
  const int shift = kAligned ? 0 : vec_shift(in),
            step = static_cast<int>(args.row_stride & (N - 1));

  {
    const int vec = static_cast<int>(threadIdx.x % Own::kVecs);
    int row = static_cast<int>(threadIdx.x / Own::kVecs);
    const int own_shift = (shift + row * step) & (N - 1);
    const T* from = in + row * args.row_stride + (vec * N - own_shift);
    uint4* to = tile + Own::position(row, vec);
    const bool any = vec * N - own_shift < columns;
#pragma unroll
    for (int s = 0; s < Own::kCopies; ++s) {
      if (any && row >= first_row && row < end_row) {
        if constexpr (kAligned) {
          copy_async<T, N>(reinterpret_cast<T*>(to), from);
        } else {
          copy_inside(to, from, args);
        }
      }
      row += Own::kLanesRows;
      from += Own::kLanesRows * args.row_stride;
      to += Own::position(Own::kLanesRows, 0);
    }
  }
  if constexpr (!kAligned) {  // the last vector of each row
    const int row = static_cast<int>(threadIdx.x);
    const int offset = Own::kColumns - ((shift + row * step) & (N - 1));
    if (offset < columns && row >= first_row && row < end_row) {
      copy_inside(tile + Own::position(row, Own::kVecs), in + row * args.row_stride + offset, args);
    }
  }
  wait_for_copies();
  __syncthreads();

  // 8 neighbouring threads write 8 vectors of a row of the output, the next 8 those of the next
  // row.
  const int vec = static_cast<int>(threadIdx.x % 8);
  int j = static_cast<int>(threadIdx.x / 8);
  T* to = static_cast<T*>(args.out) + (int64_t{matrix} * args.columns + j0 + j) * args.rows + i0;
  const int sector_shift =
      static_cast<int>(reinterpret_cast<uintptr_t>(to) / sizeof(T)) & (Own::kSector - 1);
  const int first = Own::kBefore + vec * N - (kAligned ? 0 : sector_shift);
  to += first;
  int positions[N];  // of the vector's elements in the first column
#pragma unroll
  for (int e = 0; e < N; ++e) {
    const int row = first + e;
    positions[e] = Own::position(row, 0) * N + (kAligned ? 0 : (shift + row * step) & (N - 1));
  }
#pragma unroll
  for (int s = 0; s < Own::kColumns / (kThreads / 8); ++s) {
    if (j < columns) {
#pragma unroll
      for (int part = 0; part < Own::kRows / N / 8; ++part) {
        const int row = first + part * 8 * N;
        Vec<T, N> values;
#pragma unroll
        for (int e = 0; e < N; ++e) {
          values.values[e] = reinterpret_cast<const T*>(
              tile)[positions[e] + part * Own::position(8 * N, 0) * N + j];
        }
        if (row >= first_row && row + N <= end_row) {
          store_whole(to + part * 8 * N, values);
        } else if constexpr (!kAligned) {
#pragma unroll
          for (int e = 0; e < N; ++e) {
            if (row + e >= first_row && row + e < end_row) to[part * 8 * N + e] = values.values[e];
          }
        }
      }
    }
    j += kThreads / 8;
    to += kThreads / 8 * args.rows;
  }
}

}  // namespace gpuopt::transpose
