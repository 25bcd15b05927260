// Weight gradients of many output channels by im2col: an input is read once for many channels. A
// product is a pair (c, k) of an input channel and a tap, in the order of weights.
//
//   A: gradient of 16 channels     B: columns, never stored                  D: sums
//   grad[o][j]                  x  x[c][j * stride + k * dilation - padding]  =  weight[o][(c, k)]
#pragma once

#include "conv1d/device/launch.cuh"
#include "conv1d/input_gradient/col2im.cuh"
#include "conv1d/weight_gradient/im2col_lanes.cuh"

namespace gpuopt::conv1d {

// A product's input, relative to position j * stride: `at` in its row, `delta` in memory.
struct FanProduct {
  int32_t at, delta;

  FanProduct() = default;
  __device__ __forceinline__ FanProduct(const Im2colArgs& args, uint32_t product) {
    const uint32_t c = args.taps_div.div(product), k = product - c * args.taps_div.divisor;
    at = static_cast<int32_t>(int64_t{k} * args.dilation - args.padding);
    delta = static_cast<int32_t>(c * args.from_channel + at * args.from_stride);
    if (product >= args.products) at = -kIm2colReach;  // outside any row
  }

  template <typename T>
  __device__ __forceinline__ T load(const T* from, int32_t position, int32_t stride,
                                    uint32_t size) const {
    return load_if(from + (position * stride + delta), static_cast<uint32_t>(position + at) < size);
  }
};

// The four values from value `ahead` of `low` on, continued in `high`.
__device__ __forceinline__ uint64_t shift_quads(uint64_t low, uint64_t high, uint32_t ahead) {
  const auto w0 = static_cast<uint32_t>(low), w1 = static_cast<uint32_t>(low >> 32);
  const auto w2 = static_cast<uint32_t>(high), w3 = static_cast<uint32_t>(high >> 32);
  const bool by_one = ahead & 2;
  const uint32_t a0 = by_one ? w1 : w0, a1 = by_one ? w2 : w1, a2 = by_one ? w3 : w2;
  const uint32_t bits = ahead % 2 * 16;
  return __funnelshift_r(a0, a1, bits) | uint64_t{__funnelshift_r(a1, a2, bits)} << 32;
}

// On tensor cores, for fp16 and bf16: 16 * kRows channels and 8 * kColumns products. Warps have
// different positions. With kShifts, channels have any alignment, and threads shift the vectors
// that they load. Without kShifts, a block's channels are `cycle` apart and aligned alike.
template <typename T, int kRows, int kColumns, bool kShifts>
__global__ void __launch_bounds__(kThreads, im2col_blocks(true))
    im2col_mma_kernel(const __grid_constant__ Im2colArgs args) {
  constexpr int kWarps = kThreads / 32, kSums = kRows * kColumns * 4;
  constexpr int kAtOnce = kIm2colSteps<kRows>;
  __shared__ float others[kWarps / 2][kSums][32];
  launch_dependents();
  uint32_t group = blockIdx.x;
  const uint32_t split = args.splits.divmod(group);
  const uint32_t first_product = args.tap_parts.divmod(group) * (8 * kColumns);
  const uint32_t first_row = args.out_parts.divmod(group) * (16 * kRows);
  const uint32_t channel_class = args.cycle.divmod(group);
  const uint32_t cycle = args.cycle.divisor;
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  grid_dependency_wait();
  const uint32_t rows = channel_class < args.out_channels
                            ? (args.out_channels - channel_class + cycle - 1) / cycle
                            : 0;
  if (first_row >= rows) return;

  const T* const from =
      static_cast<const T*>(args.from) + int64_t{group} * args.in_channels * args.from_channel;
  const T* const grad =
      static_cast<const T*>(args.grad) +
      (int64_t{group} * args.out_channels + channel_class + first_row * cycle) * args.grad_channel;
  const auto grad_size = static_cast<int32_t>(args.grad_size);
  const auto from_size = static_cast<uint32_t>(args.from_size);
  const auto step = static_cast<int32_t>(args.step);
  const auto from_stride = static_cast<int32_t>(args.from_stride);
  const bool has_rows = args.grad_stride == 1 || grad_size == 1;
  const uint32_t row = lane / 4;  // and row + 8, in each 16
  const int64_t pitch = 8 * cycle * args.grad_channel;
  FanProduct products[kColumns];
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
    products[n] = FanProduct(args, first_product + 8 * n + lane / 4);
  }

  float sums[kRows][kColumns][4] = {};
  const uint32_t apart = args.splits.divisor * kWarps * 4 * kAtOnce;
#pragma unroll 1
  for (uint32_t begin = (split * kWarps + warp) * 4 * kAtOnce; begin < args.units; begin += apart) {
    // Load.
    uint64_t quads[kAtOnce][2 * kRows];
    uint32_t b[kAtOnce][kColumns][2];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      uint32_t image = begin + 4 * u + lane % 4;
      const bool exists = image < args.units;
      if (!exists) image = begin;
      const auto quad = static_cast<int32_t>(args.row_units.divmod(image));
      const T* const grads = grad + image * args.grad_batch;
      const auto ahead_of = [&](const T* of) {
        return static_cast<int32_t>(reinterpret_cast<uintptr_t>(of) / sizeof(T) % kGradientQuad);
      };
      const int32_t position = quad * kGradientQuad - (kShifts || !has_rows ? 0 : ahead_of(grads));
      const bool whole =
          !has_rows ? false
          : kShifts ? position >= kGradientQuad && position + 2 * kGradientQuad <= grad_size
                    : position >= 0 && position + kGradientQuad <= grad_size;
      const T* grad_rows = grads + position * args.grad_stride + row * cycle * args.grad_channel;
      if (__ballot_sync(0xffffffffu, exists && !whole) == 0) {
#pragma unroll
        for (int r = 0; r < 2 * kRows; ++r) {
          const bool valid = exists && first_row + row + 8 * r < rows;
          const T* const quad_row = grad_rows + r * pitch;
          if constexpr (kShifts) {
            const int32_t ahead = ahead_of(quad_row);
            const auto low = load_word<uint64_t>(quad_row - ahead, valid);
            const auto high =
                load_word<uint64_t>(quad_row - ahead + kGradientQuad, valid && ahead > 0);
            quads[u][r] = shift_quads(low, high, static_cast<uint32_t>(ahead));
          } else {
            quads[u][r] = load_word<uint64_t>(quad_row, valid);
          }
        }
      } else {
#pragma unroll
        for (int r = 0; r < 2 * kRows; ++r) {
          const bool valid = exists && first_row + row + 8 * r < rows;
          quads[u][r] = load_edge_quad(grad_rows + r * pitch, position, valid ? grad_size : 0,
                                       args.grad_stride);
        }
      }
      const T* const under = from + image * args.from_batch;
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          Vec<T, 2> pair;
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const int32_t at = position + 2 * half + i;
            const bool valid =
                exists && static_cast<uint32_t>(at) < static_cast<uint32_t>(grad_size);
            pair.values[i] = products[n].load(under, at * step, from_stride, valid ? from_size : 0);
          }
          memcpy(&b[u][n][half], &pair, sizeof(pair));
        }
      }
    }
    // Multiply.
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
#pragma unroll
      for (int m = 0; m < kRows; ++m) {
        const uint64_t upper = quads[u][2 * m], lower = quads[u][2 * m + 1];
        const uint32_t a[4] = {static_cast<uint32_t>(upper), static_cast<uint32_t>(lower),
                               static_cast<uint32_t>(upper >> 32),
                               static_cast<uint32_t>(lower >> 32)};
#pragma unroll
        for (int n = 0; n < kColumns; ++n) multiply_add_matrices<T>(sums[m][n], a, b[u][n]);
      }
    }
  }

  // Reduce over the warps, in pairs.
#pragma unroll 1
  for (uint32_t half = kWarps / 2; half > 0; half /= 2) {
    if (warp >= half && warp < 2 * half) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
        others[warp - half][i][lane] = sums[i / 4 / kColumns][i / 4 % kColumns][i % 4];
      }
    }
    __syncthreads();
    if (warp < half) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
        sums[i / 4 / kColumns][i / 4 % kColumns][i % 4] += others[warp][i][lane];
      }
    }
    __syncthreads();
  }
  // Store.
  if (warp > 0) return;
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    const uint32_t m = i / 4 / kColumns, n = i / 4 % kColumns;
    const uint32_t out_row = first_row + 16 * m + lane / 4 + i % 4 / 2 * 8;
    const uint32_t product = first_product + 8 * n + lane % 4 * 2 + i % 2;
    if (out_row >= rows || product >= args.products) continue;
    const int64_t channel = int64_t{group} * args.out_channels + channel_class + out_row * cycle;
    emit_weight<T>(args, split, channel * args.products + product, sums[m][n][i % 4]);
  }
}

template <Half T, int kRows>
auto im2col_mma_kernel_of(const Im2colPlan& plan) {
  if (plan.shifts) {
    return plan.products == 16 ? im2col_mma_kernel<T, kRows, 2, true>
                               : im2col_mma_kernel<T, kRows, 4, true>;
  }
  return plan.products == 16 ? im2col_mma_kernel<T, kRows, 2, false>
                             : im2col_mma_kernel<T, kRows, 4, false>;
}
template <Half T>
auto kernel_of(const Im2colPlan& plan) {
  return plan.channels == 16 ? im2col_mma_kernel_of<T, 1>(plan) : im2col_mma_kernel_of<T, 4>(plan);
}
template <Single T>
auto kernel_of(const Im2colPlan& plan) {
  return plan.products == 4   ? im2col_lanes_kernel<T, 16, 4>
         : plan.products == 8 ? im2col_lanes_kernel<T, 8, 8>
                              : im2col_lanes_kernel<T, 8, 12>;
}

}  // namespace gpuopt::conv1d
