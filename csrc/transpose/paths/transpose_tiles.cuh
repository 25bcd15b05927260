// Transposes a tile of a matrix through shared memory (Ruetsch and Micikevicius, "Optimizing Matrix
// Transpose in CUDA", NVIDIA 2009). Loads and stores are 16 bytes wide, whatever the alignment of
// rows. README.md has a drawing of a tile.
#pragma once

#include "common/async.cuh"
#include "common/launch.cuh"
#include "transpose/device/transpose_batch.cuh"

namespace gpuopt::transpose {

// A tile in shared memory: rows of vectors of N elements. A padding vector follows every N rows.
// Eight neighbouring threads, which assemble eight neighbouring output vectors, read a column in
// rows N apart. The padding puts these rows in different banks. If not kAligned, a row has one
// vector more, because it may begin inside a vector. The tile then has a sector's rows more before
// its own, because rows of the output may begin inside a sector.
template <typename T, bool kAligned>
struct Tile {
  static constexpr int N = kVecSize<T>;
  static constexpr int kRows = tile_rows(sizeof(T)), kColumns = tile_columns(sizeof(T));
  static constexpr int kVecs = kColumns / N;           // vectors of a row, one thread for each
  static constexpr int kLanesRows = kThreads / kVecs;  // rows that a block copies at a time
  static constexpr int kSector = kSectorBytes / sizeof(T);
  static constexpr int kBefore = kAligned ? 0 : kSector;     // rows before the tile's own
  static constexpr int kPitch = kVecs + (kAligned ? 0 : 1);  // vectors from row to row
  static constexpr int kAllRows = kBefore + kRows;
  static constexpr int kSize = kAllRows * kPitch + kAllRows / N;
  static constexpr int kCopies = ceil_div(kAllRows, kLanesRows);  // vectors that a thread copies
  // The rows that a thread reads all have the same alignment, and so do the columns that it writes.
  static_assert(kLanesRows % N == 0 && kThreads / 8 % kSector == 0 && kAllRows <= kThreads);

  static __device__ __forceinline__ int position(int row, int vec) {
    return row * kPitch + row / N + vec;
  }
};

// The number of elements from the 16-byte boundary at or below an address to the address.
template <typename T>
__device__ __forceinline__ int vec_shift(const T* address) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(address) / sizeof(T)) & (kVecSize<T> - 1);
}

// Copies the vector at `from` to the tile. Elements outside the tensor's memory are not read.
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

// Blocks are numbered down the rows of the input first, so that the blocks in flight write long
// runs of the output (8192 x 8192 fp32: 137 us; 144 us along the columns first).
template <typename T, bool kAligned>
__global__ void __launch_bounds__(kThreads) tiles_kernel(const __grid_constant__ Args args) {
  using Own = Tile<T, kAligned>;
  constexpr int N = Own::N;
  __shared__ uint4 tile[Own::kSize];
  launch_dependents();

  // Find the block's tile.
  uint32_t matrix = blockIdx.x;
  const int64_t i0 = int64_t{args.row_tiles.divmod(matrix)} * Own::kRows - Own::kBefore;
  const int64_t j0 = int64_t{args.column_tiles.divmod(matrix)} * Own::kColumns;
  // The tile has rows [first_row, end_row), and this number of columns.
  const int first_row = i0 < 0 ? Own::kBefore : 0;
  const auto end_row = static_cast<int>(min(args.rows - i0, int64_t{Own::kAllRows}));
  const auto columns = static_cast<int>(min(args.columns - j0, int64_t{Own::kColumns}));
  const T* const in =
      static_cast<const T*>(args.in) + offset_of(matrix, args.batch) + i0 * args.row_stride + j0;
  // Row i of the tile begins (shift + i * step) mod N elements into its first vector.
  const int shift = kAligned ? 0 : vec_shift(in),
            step = static_cast<int>(args.row_stride & (N - 1));

  grid_dependency_wait();
  // Load the rows of the tile in vectors.
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
  // Load the last vector of each row: one thread per row.
  if constexpr (!kAligned) {
    const int row = static_cast<int>(threadIdx.x);
    const int offset = Own::kColumns - ((shift + row * step) & (N - 1));
    if (offset < columns && row >= first_row && row < end_row) {
      copy_inside(tile + Own::position(row, Own::kVecs), in + row * args.row_stride + offset, args);
    }
  }
  wait_for_copies();
  __syncthreads();

  // Assemble columns of the tile and store them as rows of the output. Eight neighbouring threads
  // write eight vectors of one row, the next eight threads write the next row.
  const int vec = static_cast<int>(threadIdx.x % 8);
  int j = static_cast<int>(threadIdx.x / 8);
  T* to = static_cast<T*>(args.out) + (int64_t{matrix} * args.columns + j0 + j) * args.rows + i0;
  const int sector_shift =
      static_cast<int>(reinterpret_cast<uintptr_t>(to) / sizeof(T)) & (Own::kSector - 1);
  const int first = Own::kBefore + vec * N - (kAligned ? 0 : sector_shift);
  to += first;
  int positions[N];  // where the N elements of a vector lie in the tile's first column
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
