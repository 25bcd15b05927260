// The kernel for operands with any strides, which are read value by value.
#pragma once

#include "dot/device/dot_kernel.cuh"

namespace gpuopt::dot {

template <typename T>
constexpr int kUnrollOf = sizeof(T) >= 8 ? kWideUnroll : kValueUnroll;

// Path "values". A block has x rows and y threads along each. Neighbouring threads read the same
// row or, with rows_first, neighbouring rows: whichever lie closer in memory.
template <typename T>
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
  const int64_t row = int64_t{tile} * args.x + x;

  V value = {};
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
      T a[kUnroll], b[kUnroll];
      V sums[kUnroll];
      if (i + int64_t{args.y} * (kUnroll - 1) < args.size) {
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
          a[u] = self[u * self_step];
          b[u] = tensor[u * tensor_step];
        }
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
          sums[u] = multiply(conjugate(to_compute(a[u]), args.conjugate_self), to_compute(b[u]));
        }
      } else {
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
          const bool valid = i + int64_t{u} * args.y < args.size;
          a[u] = valid ? self[u * self_step] : T{};
          b[u] = valid ? tensor[u * tensor_step] : T{};
        }
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
          sums[u] = multiply(conjugate(to_compute(a[u]), args.conjugate_self), to_compute(b[u]));
        }
      }
      value = value + sum_in_pairs(sums);
      self += jump * args.self_stride;
      tensor += jump * args.tensor_stride;
    }
  }

  // Sum the threads of a row: by shuffles if they are neighbours within a warp, else in shared
  // memory in a fixed order.
  if (!args.rows_first && args.y <= kWarp) {
    value = sum_lanes(value, args.y);
  } else if (args.y > 1) {
    __shared__ V sums[kThreads];
    sums[y * args.x + x] = value;
    for (uint32_t lanes = args.y / 2; lanes > 0; lanes /= 2) {
      __syncthreads();
      if (y < lanes) {
        value = value + sums[(y + lanes) * args.x + x];
        sums[y * args.x + x] = value;
      }
    }
  }
  if (y == 0 && row < args.rows) {
    emit<T>(args.to, args.target, row, split, splits, value, args.conjugate_out);
  }
}

}  // namespace gpuopt::dot
