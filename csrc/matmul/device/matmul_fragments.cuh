// The outputs of a warp, in fragments of 16 x 8, and the two TF32 parts of a float32.
#pragma once

#include "common/mma.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"
#include "matmul/device/matmul_tile.cuh"

namespace gpuopt::matmul {

// Stores two neighbouring outputs, by one instruction if every row begins at an even element.
template <typename T>
__device__ __forceinline__ void store_pair(T* out, int m, int n, int row, int column, float first,
                                           float second) {
  if (row >= m || column >= n) return;
  T* const to = out + int64_t{row} * n + column;
  const Vec<T, 2> pair{from_compute<T>(first), from_compute<T>(second)};
  if (n % 2 == 0) {
    store_whole(to, pair);
  } else {
    to[0] = pair.values[0];
    if (column + 1 < n) to[1] = pair.values[1];
  }
}

// The row and the column of the thread's values 0 and 1, or 2 and 3 (`half` is 1), of a fragment.
__device__ __forceinline__ int fragment_row(int half) {
  return static_cast<int>(threadIdx.x % 32 / 4) + 8 * half;
}
__device__ __forceinline__ int fragment_column() { return static_cast<int>(threadIdx.x % 4) * 2; }

// Stores the outputs of a warp, whose tile begins at `row` and `column`.
template <typename T, int kRows, int kColumns>
__device__ __forceinline__ void store_fragments(const float (&sums)[kRows][kColumns][4], T* out,
                                                int m, int n, int row, int column) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        store_pair(out, m, n, row + 16 * i + fragment_row(half), column + 8 * j + fragment_column(),
                   sums[i][j][2 * half], sums[i][j][2 * half + 1]);
      }
    }
  }
}

// [three_tf32]
// x = big + small, both with 11 significant bits. If x is infinite, NaN, or so large that `big` is
// infinite, `small` is NaN, and so are all outputs that x takes part in.
struct Parts {
  uint32_t big, small;
};
__device__ __forceinline__ Parts parts_of(uint32_t x) {
  const uint32_t big = (x + 0x1000u) & ~0x1fffu;  // rounded to nearest
  float value, rounded;
  memcpy(&value, &x, sizeof(x));
  memcpy(&rounded, &big, sizeof(big));
  const float rest = value - rounded;  // exact. mma ignores its low bits
  Parts parts{big};
  memcpy(&parts.small, &rest, sizeof(rest));
  return parts;
}

// Computes stored outputs of a warp again where sums are NaN, because infinite operands have no two
// parts. dot(i, j) is an output in float32.
template <int kRows, int kColumns, typename Dot>
__device__ __forceinline__ void recompute_nan(const float (&sums)[kRows][kColumns][4], float* out,
                                              int m, int n, int row, int column, Dot dot) {
  bool has_nan = false;
#pragma unroll
  for (int q = 0; q < kRows * kColumns * 4; ++q) {
    const float sum = sums[q / 4 / kColumns][q / 4 % kColumns][q % 4];
    has_nan |= sum != sum;
  }
  if (!has_nan) return;
#pragma unroll 1
  for (int q = 0; q < kRows * kColumns * 4; ++q) {
    const int i = row + q / 4 / kColumns * 16 + fragment_row(q / 2 % 2);
    const int j = column + q / 4 % kColumns * 8 + fragment_column() + q % 2;
    if (i >= m || j >= n) continue;
    float& output = out[int64_t{i} * n + j];
    if (output != output) output = dot(i, j);
  }
}
// [three_tf32]

}  // namespace gpuopt::matmul
