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
                         valid, args.read_once);
    b[k] =
        load_16_bytes(static_cast<const T*>(args.tensor) + row * args.tensor_row_stride + lane * N,
                      valid, args.read_once);
  }
#pragma unroll
  for (int k = 0; k < kRows; ++k) {
    const int64_t row = first + k * args.x;
    const V own = dot_of<T>(a[k], b[k], args.conjugate_self);
    const V sum = sum_lanes(has_vec ? own : V{}, args.y);
    if (lane == 0 && row < args.rows) {
      emit<T>(args.to, args.target, row, 0, 1, sum, args.conjugate_out);
    }
  }
}

// Path "tile": short rows that aren't whole vectors, without gaps between them. A block copies its
// rows of each operand to shared memory as one piece. There, y threads sum each row.
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
  const uint32_t values = here * size;
  T* const tiles[] = {reinterpret_cast<T*>(shared), reinterpret_cast<T*>(shared) + rows * size};
  const T* const operands[] = {static_cast<const T*>(args.self) + first * size,
                               static_cast<const T*>(args.tensor) + first * size};
#pragma unroll
  for (int o = 0; o < 2; ++o) {
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
#pragma unroll 4
      for (uint32_t i = row * size + lane; i < (row + 1) * size; i += args.y) {
        value = multiply_add(conjugate(to_compute(tiles[0][i]), args.conjugate_self),
                             to_compute(tiles[1][i]), value);
      }
    }
    value = sum_lanes(value, args.y);
    if (lane == 0 && row < here) {
      emit<T>(args.to, args.target, first + row, 0, 1, value, args.conjugate_out);
    }
  }
}

}  // namespace gpuopt::dot
