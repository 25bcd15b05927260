// What steps of the ladder share: the matrices, tiles in shared memory, the outputs of a thread,
// and the loop over slices. docs/ladder shows the code between two equal marks in brackets.
#pragma once

#include "common/async.cuh"
#include "common/launch.cuh"
#include "common/vec.cuh"
#include "matmul/device/matmul_tile.cuh"
#include "matmul/ladder/matmul_ladder_steps.h"

namespace gpuopt::matmul {

template <typename T>
struct Matrices {
  const T* a;  // [m][k]
  const T* b;  // [k][n]
  T* out;      // [m][n]
  int m, n, k;
  int64_t a_pitch, b_pitch;
};

template <typename T>
Matrices<T> matrices_of(const LadderProblem& p) {
  return {static_cast<const T*>(p.a),
          static_cast<const T*>(p.b),
          static_cast<T*>(p.out),
          p.m,
          p.n,
          p.k,
          p.a_pitch,
          p.b_pitch};
}

// Whether rows are whole vectors of 16 bytes, at multiples of 16 bytes.
inline bool is_aligned(const void* matrix, int64_t pitch, int columns, DType dtype) {
  const auto bytes = static_cast<uintptr_t>(pitch | columns) * size_of(dtype);
  return (reinterpret_cast<uintptr_t>(matrix) | bytes) % kAccessBytes == 0;
}

inline bool has_aligned_operands(const LadderProblem& p) {
  return is_aligned(p.a, p.a_pitch, p.k, p.dtype) && is_aligned(p.b, p.b_pitch, p.n, p.dtype);
}

inline unsigned tiles_of(const LadderProblem& p, int rows, int columns) {
  return static_cast<unsigned>(int64_t{ceil_div(p.m, rows)} * ceil_div(p.n, columns));
}

// Indices of a thread's rows or columns: `count` of them, in vectors of neighbours that lie `step`
// apart.
struct Spread {
  int count, vec, step;
  __host__ __device__ constexpr int at(int i) const { return i / vec * step + i % vec; }
};

// Reads values of shared memory, by vectors of 16 bytes if they fit.
template <Spread kSpread>
__device__ __forceinline__ void load_values(float (&values)[kSpread.count], const float* shared) {
#pragma unroll
  for (int i = 0; i < kSpread.count; i += kSpread.vec) {
    if constexpr (kSpread.vec == 4) {
      *reinterpret_cast<float4*>(values + i) =
          *reinterpret_cast<const float4*>(shared + kSpread.at(i));
    } else {
#pragma unroll
      for (int j = 0; j < kSpread.vec; ++j) values[i + j] = shared[kSpread.at(i + j)];
    }
  }
}

// [output_block]
// The outputs of a thread, in registers.
template <Spread kRows, Spread kColumns>
struct OutputBlock {
  alignas(16) float sums[kRows.count][kColumns.count] = {};

  // Every second row goes backwards, so a new row begins with the column of the previous product:
  // each product has an operand that the previous one has read from its register.
  __device__ __forceinline__ void multiply_add(const float (&a)[kRows.count],
                                               const float (&b)[kColumns.count]) {
#pragma unroll
    for (int i = 0; i < kRows.count; ++i) {
#pragma unroll
      for (int q = 0; q < kColumns.count; ++q) {
        const int j = i % 2 == 0 ? q : kColumns.count - 1 - q;
        sums[i][j] = fmaf(a[i], b[j], sums[i][j]);
      }
    }
  }

  // Stores the outputs, which begin at `row` and `column`. A vector needs its four sums in an
  // aligned group of registers. The columns of B come in such groups, too, so a sum then lies in
  // the same bank of registers as the value of B with which it meets.
  template <bool kByVectors = false>
  __device__ __forceinline__ void store(float* out, int m, int n, int row, int column) const {
    const bool whole = kByVectors && n % 4 == 0;
#pragma unroll
    for (int i = 0; i < kRows.count; ++i) {
      if (row + kRows.at(i) >= m) continue;
      float* const first = out + int64_t{row + kRows.at(i)} * n;
#pragma unroll
      for (int j = 0; j < kColumns.count; j += kColumns.vec) {
        const int output_column = column + kColumns.at(j);
        if (whole) {
          if (output_column >= n) continue;
          Vec<float, 4> vec;
#pragma unroll
          for (int q = 0; q < kColumns.vec; ++q) vec.values[q] = sums[i][j + q];
          store_whole(first + output_column, vec);
        } else {
#pragma unroll
          for (int q = 0; q < kColumns.vec; ++q) {
            if (output_column + q < n) first[output_column + q] = sums[i][j + q];
          }
        }
      }
    }
  }
};
// [output_block]

// Copies 16-byte vectors of a tile to shared memory: vector v of row r to shared[at(r, v)]. `from`
// is the first value of the tile in global memory. Values behind `rows_left` and `columns_left`
// become 0. kAligned: the rows of the matrix are as in is_aligned().
template <int kRows, int kVecs, int kThreads, bool kAligned, typename T, typename At>
__device__ __forceinline__ void copy_tile(uint4* shared, const T* from, int64_t pitch,
                                          int rows_left, int columns_left, At at) {
  constexpr int N = kVecSize<T>;
  static_assert(kRows * kVecs % kThreads == 0);
  constexpr int kEach = kRows * kVecs / kThreads;
  constexpr int kUnroll = kAligned || sizeof(T) == 4 ? kEach : kEach / 2;  // else registers spill
#pragma unroll kUnroll
  for (int i = 0; i < kEach; ++i) {
    const uint32_t q = threadIdx.x + i * kThreads;
    const int row = q / kVecs, vec = q % kVecs;
    const int left = row < rows_left ? max(0, min(N, columns_left - vec * N)) : 0;
    const T* const source = from + row * pitch + vec * N;
    uint4* const to = shared + at(row, vec);
    if constexpr (kAligned) {
      copy_async_if(to, reinterpret_cast<const uint4*>(source), left > 0);
    } else if constexpr (sizeof(T) == 4) {
#pragma unroll
      for (int j = 0; j < N; ++j) copy_async_if(reinterpret_cast<T*>(to) + j, source + j, j < left);
    } else {
      Vec<T, N> values = {};
#pragma unroll
      for (int j = 0; j < N; ++j) {
        if (j < left) values.values[j] = source[j];
      }
      store_vec(reinterpret_cast<T*>(to), values);
    }
  }
}

// [double_buffer]
// Calls load(slice, stage) and multiply(stage) for all slices. kStages - 1 slices are in flight.
template <int kStages, typename Load, typename Multiply>
__device__ __forceinline__ void pipeline(int slices, Load load, Multiply multiply) {
#pragma unroll
  for (int slice = 0; slice < kStages - 1; ++slice) {
    if (slice < slices) load(slice, slice);
    end_copy_group();
  }
  int stage = 0, next_stage = kStages - 1;
  for (int slice = 0; slice < slices; ++slice) {
    wait_for_copy_groups<kStages - 2>();
    __syncthreads();  // the slice is there, and all threads have read the previous one
    if (slice + kStages - 1 < slices) load(slice + kStages - 1, next_stage);
    end_copy_group();
    multiply(stage);
    stage = stage + 1 == kStages ? 0 : stage + 1;
    next_stage = next_stage + 1 == kStages ? 0 : next_stage + 1;
  }
}
// [double_buffer]

}  // namespace gpuopt::matmul
