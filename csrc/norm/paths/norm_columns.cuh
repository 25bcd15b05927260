// The gradients of weight and bias, which are sums over columns: of long rows from the operands,
// and of all rows from the partial gradients of blocks.
#pragma once

#include "common/launch.cuh"
#include "norm/device/norm_access.cuh"
#include "norm/device/norm_group.cuh"
#include "norm/norm_plan.h"

namespace gpuopt::norm {

// A block has 32 units of some rows. A warp reads a unit of each column from every eighth row, and
// four rows at a time.
template <typename T, int kValues>
__global__ void __launch_bounds__(kColumnLanes* kColumnRows)
    add_columns(const __grid_constant__ BackwardArgs args, uint32_t rows,
                const __grid_constant__ FastDiv tiles) {
  using C = compute_t<T>;
  constexpr int kAtOnce = 4;
  __shared__ C shared[2][kColumnRows][kColumnLanes * kValues];
  const Tiling& tiling = args.tiling;
  const uint32_t lane = threadIdx.x % kColumnLanes, warp = threadIdx.x / kColumnLanes;
  uint32_t split = blockIdx.x;
  const int64_t first = int64_t{tiles.divmod(split)} * kColumnLanes;
  const uint32_t begin = split * rows, end = min(begin + rows, tiling.rows);
  const int64_t position = (first + lane) * kValues;
  const bool has_unit = first + lane < tiling.units;
  const T* input = static_cast<const T*>(args.input) + position;
  const T* grad = static_cast<const T*>(args.grad) + position;
  C sums[2][kValues] = {};
  grid_dependency_wait();
  launch_next();
  for (uint32_t first_row = begin + warp; first_row < end; first_row += kAtOnce * kColumnRows) {
    Vec<T, kValues> inputs[kAtOnce], grads[kAtOnce];
    C means[kAtOnce] = {}, rstds[kAtOnce] = {};
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const uint32_t row = first_row + k * kColumnRows;
      const bool is_valid = has_unit && row < end;
      inputs[k] = load_unit<T, kValues>(input + args.input_rows.of(row), is_valid);
      grads[k] = load_unit<T, kValues>(grad + args.grad_rows.of(row), is_valid);
      if (row >= end) continue;
      if (args.mean != nullptr) means[k] = static_cast<const C*>(args.mean)[row];
      rstds[k] = static_cast<const C*>(args.rstd)[row];
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        const C value = to_compute(grads[k].values[i]);
        const C normal = (to_compute(inputs[k].values[i]) - means[k]) * rstds[k];
        sums[0][i] = multiply_add(value, normal, sums[0][i]);
        sums[1][i] += value;
      }
    }
  }
#pragma unroll
  for (int a = 0; a < 2; ++a) {
#pragma unroll
    for (int i = 0; i < kValues; ++i) shared[a][warp][lane * kValues + i] = sums[a][i];
  }
  __syncthreads();
  C* partial = static_cast<C*>(args.partials) + int64_t{split} * 2 * tiling.length;
  for (uint32_t i = threadIdx.x; i < 2 * kColumnLanes * kValues; i += blockDim.x) {
    const uint32_t array = i / (kColumnLanes * kValues), column = i % (kColumnLanes * kValues);
    const int64_t at = first * kValues + column;
    if (at >= tiling.length) continue;
    C sum = 0;
#pragma unroll
    for (int w = 0; w < kColumnRows; ++w) sum += shared[array][w][column];
    partial[array * tiling.length + at] = sum;
  }
}

// The sum of partial gradients, in a fixed order. A block has 32 columns of one gradient.
template <typename C>
__global__ void __launch_bounds__(kMostFinishThreads)
    finish_columns(const __grid_constant__ FinishArgs args, DType dtype) {
  constexpr int kAtOnce = 4;
  __shared__ C shared[kMaxWarps][kFinishLanes];
  const uint32_t lane = threadIdx.x % kFinishLanes, warp = threadIdx.x / kFinishLanes;
  const uint32_t warps = blockDim.x / kFinishLanes;
  const uint32_t array = blockIdx.x % 2;
  const int64_t column = int64_t{blockIdx.x / 2} * kFinishLanes + lane;
  void* out = args.grads[array];
  if (out == nullptr) return;
  const C* partials = static_cast<const C*>(args.partials) + array * args.length + column;
  C sum = 0;
  grid_dependency_wait();
  launch_next();
  if (column < args.length) {
    for (int64_t first = warp; first < args.count; first += kAtOnce * warps) {
      C values[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int64_t number = first + k * warps;
        values[k] = number < args.count ? partials[number * 2 * args.length] : C{0};
      }
      sum += (values[0] + values[1]) + (values[2] + values[3]);
    }
  }
  shared[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= args.length) return;
  for (uint32_t other = 1; other < warps; ++other) sum += shared[other][lane];
  store_value(out, dtype, column, sum);
}

}  // namespace gpuopt::norm
