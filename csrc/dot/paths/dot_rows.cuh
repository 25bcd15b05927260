// Kernels for many short, contiguous rows.
#pragma once

#include "common/async.cuh"
#include "dot/device/dot_kernel.cuh"

namespace gpuopt::dot {

extern __shared__ uint4 shared[];

// Path "short rows": aligned rows of at most y vectors. A group of y threads reads kVecUnroll rows,
// one vector per thread and row. The rows of a group lie x apart, so that a block reads x
// neighbouring rows at a time.
template <typename T>
__global__ void __launch_bounds__(kThreads, kBlocks)
    short_rows_kernel(const __grid_constant__ Args args) {
  using V = sum_t<T>;
  constexpr int N = kVecSize<T>, kRows = kVecUnroll;
  launch_dependents();
  grid_dependency_wait();
  const uint32_t lane = threadIdx.x & (args.y - 1);
  const int64_t first = int64_t{blockIdx.x} * (args.x * kRows) + threadIdx.x / args.y;
  const bool has_vec = lane * N < args.size;

  uint4 a[kRows], b[kRows];
#pragma unroll
  for (int k = 0; k < kRows; ++k) {
    const int64_t row = first + k * args.x;
    const bool valid = has_vec && row < args.rows;
    a[k] = load_16_bytes(static_cast<const T*>(args.self) + row * args.self_row_stride + lane * N,
                         valid, /*once=*/true);
    b[k] =
        load_16_bytes(static_cast<const T*>(args.tensor) + row * args.tensor_row_stride + lane * N,
                      valid, /*once=*/true);
  }
#pragma unroll
  for (int k = 0; k < kRows; ++k) {
    const int64_t row = first + k * args.x;
    const V product = dot_of<T>(a[k], b[k], args.conjugate_self);
    const V sum = sum_lanes(has_vec ? product : V{}, args.y);
    if (lane == 0 && row < args.rows) {
      emit<T>(args.to, args.target, row, 0, 1, sum, args.conjugate_out);
    }
  }
}

// The values of a 4-byte word of shared memory. 1 for larger values.
template <typename T>
constexpr int kWord = sizeof(T) < 4 ? 4 / sizeof(T) : 1;

// The sum of a thread's part of a row in shared memory: every y-th unit of N values.
template <int N, typename T>
__device__ __forceinline__ sum_t<T> sum_of_row(const T* self, const T* tensor, uint32_t lane,
                                               const Args& args) {
  sum_t<T> value = {};
  const auto size = static_cast<uint32_t>(args.size);
#pragma unroll 4
  for (uint32_t i = lane * N; i < size; i += args.y * N) {
    const auto a = load_vec<T, N>(self + i), b = load_vec<T, N>(tensor + i);
#pragma unroll
    for (int e = 0; e < N; ++e) {
      value = multiply_add(conjugate(to_compute(a.values[e]), args.conjugate_self),
                           to_compute(b.values[e]), value);
    }
  }
  return value;
}

// Path "tile": short rows without gaps between them, or one row for all (row stride 0). A block
// copies its rows of each operand to shared memory as one piece. There, y threads sum each row.
template <typename T>
__global__ void __launch_bounds__(kThreads, kBlocks)
    tile_kernel(const __grid_constant__ Args args) {
  using V = sum_t<T>;
  constexpr uint32_t N = kVecSize<T>;
  launch_dependents();
  grid_dependency_wait();
  const uint32_t rows = args.x * args.rows_per_lane;
  const int64_t first = int64_t{blockIdx.x} * rows;
  const auto here = static_cast<uint32_t>(min(args.rows - first, int64_t{rows}));
  const auto size = static_cast<uint32_t>(args.size);
  // A row stride is the size of a row or 0.
  const uint32_t strides[] = {static_cast<uint32_t>(args.self_row_stride),
                              static_cast<uint32_t>(args.tensor_row_stride)};
  T* const tiles[] = {reinterpret_cast<T*>(shared), reinterpret_cast<T*>(shared) + rows * size};
  const T* const operands[] = {static_cast<const T*>(args.self) + first * strides[0],
                               static_cast<const T*>(args.tensor) + first * strides[1]};
#pragma unroll
  for (int o = 0; o < 2; ++o) {
    const uint32_t values = (here - 1) * strides[o] + size;
    for (uint32_t p = threadIdx.x; p < values / N; p += kThreads) {
      copy_async<T, N>(tiles[o] + p * N, operands[o] + p * N);
    }
    for (uint32_t i = values / N * N + threadIdx.x; i < values; i += kThreads) {
      tiles[o][i] = operands[o][i];
    }
  }
  wait_for_copies();
  __syncthreads();

  // Multiply and sum the rows.
  const uint32_t lane = threadIdx.x & (args.y - 1);
  for (uint32_t r = 0; r < args.rows_per_lane; ++r) {
    const uint32_t row = threadIdx.x / args.y + r * args.x;
    V value = {};
    if (row < here) {
      const T* const self = tiles[0] + row * strides[0];
      const T* const tensor = tiles[1] + row * strides[1];
      value = size % kWord<T> == 0 ? sum_of_row<kWord<T>>(self, tensor, lane, args)
                                   : sum_of_row<1>(self, tensor, lane, args);
    }
    value = sum_lanes(value, args.y);
    if (lane == 0 && row < here) {
      emit<T>(args.to, args.target, first + row, 0, 1, value, args.conjugate_out);
    }
  }
}

}  // namespace gpuopt::dot
