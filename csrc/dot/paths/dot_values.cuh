// The kernel for operands with any strides, which are read value by value.
#pragma once

#include "common/vec.cuh"
#include "dot/device/dot_kernel.cuh"

namespace gpuopt::dot {

template <typename T>
constexpr int kUnrollOf = sizeof(T) >= 8 ? kWideUnroll : kValueUnroll;

// Path "values". A block has x rows and y threads along each. Neighbouring threads read the same
// row or, with rows_first, neighbouring rows: whichever lie closer in memory. A thread has R rows.
// If these are two, they lie beside each other in both operands, and are read as one word.
template <typename T, int R>
__global__ void __launch_bounds__(kThreads, kBlocks)
    values_kernel(const __grid_constant__ Args args) {
  using V = sum_t<T>;
  constexpr int kUnroll = kUnrollOf<T>;
  launch_dependents();
  grid_dependency_wait();
  uint32_t tile = blockIdx.x;
  const uint32_t split = args.splits.divmod(tile), splits = args.splits.divisor;
  const uint32_t x = args.rows_first ? threadIdx.x & (args.x - 1) : threadIdx.x / args.y;
  const uint32_t y = args.rows_first ? threadIdx.x / args.x : threadIdx.x & (args.y - 1);
  const int64_t row = (int64_t{tile} * args.x + x) * R;

  V values[R] = {};
  if (row < args.rows) {
    const uint32_t group = args.y * kUnroll;
    const int64_t begin = int64_t{split} * group + y;
    const T* self =
        static_cast<const T*>(args.self) + row * args.self_row_stride + begin * args.self_stride;
    const T* tensor = static_cast<const T*>(args.tensor) + row * args.tensor_row_stride +
                      begin * args.tensor_stride;
    const int64_t self_step = args.self_stride * args.y;
    const int64_t tensor_step = args.tensor_stride * args.y;
    const int64_t jump = int64_t{splits} * group;
    for (int64_t i = begin; i < args.size; i += jump) {
      Vec<T, R> a[kUnroll], b[kUnroll];
      if (i + int64_t{args.y} * (kUnroll - 1) < args.size) {
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
          a[u] = load_vec<T, R>(self + u * self_step);
          b[u] = load_vec<T, R>(tensor + u * tensor_step);
        }
      } else {
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
          const bool valid = i + int64_t{u} * args.y < args.size;
          a[u] = valid ? load_vec<T, R>(self + u * self_step) : Vec<T, R>{};
          b[u] = valid ? load_vec<T, R>(tensor + u * tensor_step) : Vec<T, R>{};
        }
      }
#pragma unroll
      for (int r = 0; r < R; ++r) {
        V sums[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
          sums[u] = multiply(conjugate(to_compute(a[u].values[r]), args.conjugate_self),
                             to_compute(b[u].values[r]));
        }
        values[r] = values[r] + sum_in_pairs(sums);
      }
      self += jump * args.self_stride;
      tensor += jump * args.tensor_stride;
    }
  }

  // Sum the threads of a row: by shuffles if they are neighbours within a warp, else in shared
  // memory in a fixed order.
  if (!args.rows_first && args.y <= kWarp) {
    values[0] = sum_lanes(values[0], args.y);  // R is 1
  } else if (args.y > 1) {
    __shared__ V sums[R][kThreads];
#pragma unroll
    for (int r = 0; r < R; ++r) sums[r][y * args.x + x] = values[r];
    for (uint32_t lanes = args.y / 2; lanes > 0; lanes /= 2) {
      __syncthreads();
      if (y >= lanes) continue;
#pragma unroll
      for (int r = 0; r < R; ++r) {
        values[r] = values[r] + sums[r][(y + lanes) * args.x + x];
        sums[r][y * args.x + x] = values[r];
      }
    }
  }
  if (y != 0 || row >= args.rows) return;
#pragma unroll
  for (int r = 0; r < R; ++r) {
    emit<T>(args.to, args.target, row + r, split, splits, values[r], args.conjugate_out);
  }
}

}  // namespace gpuopt::dot
