// Weight gradients of any strides and dilations.
#pragma once

#include "conv1d/device/launch.cuh"
#include "conv1d/weight_gradient/general.h"
#include "conv1d/weight_gradient/sums.cuh"

namespace gpuopt::conv1d {

// Computes kTaps taps and kChannels output channels at once.
template <typename T, int kChannels, int kTaps>
__global__ void __launch_bounds__(kThreads)
    weight_general_kernel(const __grid_constant__ WeightArgs args) {
  using C = compute_t<T>;
  constexpr int K = kTaps;
  launch_dependents();
  uint32_t group = blockIdx.x;
  const uint32_t split = args.splits.divmod(group);
  const uint32_t first_tap = args.tap_parts.divmod(group) * K;
  const uint32_t in_channel = args.in_parts.divmod(group);
  const uint32_t channel = args.out_parts.divmod(group) * kChannels;
  grid_dependency_wait();
  const T* const from = static_cast<const T*>(args.from) +
                        (int64_t{group} * args.in_channels + in_channel) * args.from_channel;
  const T* const grad = static_cast<const T*>(args.grad) +
                        (int64_t{group} * args.out_channels + channel) * args.grad_channel;
  C sums[kChannels * K] = {};
  const int64_t offset = int64_t{first_tap} * args.dilation - args.padding;
  PositionCursor cursor(args, int64_t{split} * kThreads + threadIdx.x,
                        int64_t{args.splits.divisor} * kThreads);
  for (; cursor.left > 0; cursor.move_on(args)) {
    const int64_t image = cursor.image, position = cursor.position;
    const T* const grads = grad + image * args.grad_batch + position * args.grad_stride;
    C grad_values[kChannels];
#pragma unroll
    for (int m = 0; m < kChannels; ++m) {
      const bool valid = channel + m < args.out_channels;
      grad_values[m] = to_compute(grads[valid ? m * args.grad_channel : 0]);
    }
    C values[K];
    load_under(values, args, from + image * args.from_batch, position * args.step + offset,
               first_tap);
#pragma unroll
    for (int k = 0; k < K; ++k) {
#pragma unroll
      for (int m = 0; m < kChannels; ++m) {
        sums[m * K + k] = multiply_add(grad_values[m], values[k], sums[m * K + k]);
      }
    }
  }
  // Reduce over the block and store.
  sum_block<kChannels * K>(sums, [&](uint32_t i, C sum) {
    const uint32_t m = channel + i / K, tap = first_tap + i % K;
    if (m >= args.out_channels || tap >= args.taps) return;
    const int64_t out_channel = int64_t{group} * args.out_channels + m;
    emit_weight<T>(args, split, (out_channel * args.in_channels + in_channel) * args.taps + tap,
                   sum);
  });
}

// Like weight_general_kernel, but neighbouring threads have neighbouring output channels, which are
// neighbours in memory.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    weight_columns_kernel(const __grid_constant__ WeightArgs args) {
  using C = compute_t<T>;
  constexpr int K = kWeightTaps, kRows = kThreads / 32;
  __shared__ C shared_sums[kRows][32][K + 1];
  launch_dependents();
  uint32_t part = blockIdx.x;
  const uint32_t split = args.splits.divmod(part);
  const uint32_t first_tap = args.tap_parts.divmod(part) * K;
  const uint32_t in_channel = args.in_parts.divmod(part);
  const uint32_t lane = threadIdx.x % 32, y = threadIdx.x / 32;
  const uint32_t channel = part * 32 + lane;
  const auto channels = static_cast<uint32_t>(args.weights / args.in_channels / args.taps);
  grid_dependency_wait();
  C sums[K] = {};
  if (channel < channels) {
    const uint32_t group = channel / args.out_channels;
    const T* const from = static_cast<const T*>(args.from) +
                          (int64_t{group} * args.in_channels + in_channel) * args.from_channel;
    const T* const grad = static_cast<const T*>(args.grad) + channel * args.grad_channel;
    const int64_t offset = int64_t{first_tap} * args.dilation - args.padding;
    PositionCursor cursor(args, int64_t{split} * kRows + y, int64_t{args.splits.divisor} * kRows);
    for (; cursor.left > 0; cursor.move_on(args)) {
      const int64_t image = cursor.image, position = cursor.position;
      const C grad_value = to_compute(grad[image * args.grad_batch + position * args.grad_stride]);
      C values[K];
      load_under(values, args, from + image * args.from_batch, position * args.step + offset,
                 first_tap);
#pragma unroll
      for (int k = 0; k < K; ++k) sums[k] = multiply_add(grad_value, values[k], sums[k]);
    }
  }
  // Reduce over the warps and store.
#pragma unroll
  for (int k = 0; k < K; ++k) shared_sums[y][lane][k] = sums[k];
  __syncthreads();
  const uint32_t out_lane = threadIdx.x / K, k = threadIdx.x % K;
  const uint32_t out_channel = part * 32 + out_lane;
  if (out_channel >= channels || first_tap + k >= args.taps) return;
  C sum = shared_sums[0][out_lane][k];
#pragma unroll
  for (int row = 1; row < kRows; ++row) sum += shared_sums[row][out_lane][k];
  emit_weight<T>(args, split,
                 (int64_t{out_channel} * args.in_channels + in_channel) * args.taps + first_tap + k,
                 sum);
}

template <typename T>
auto kernel_of(const WeightGeneralPlan& plan) {
  if constexpr (sizeof(T) < 8) {
    if (plan.channels == 4) {
      return plan.taps == 4 ? weight_general_kernel<T, 4, 4> : weight_general_kernel<T, 4, 8>;
    }
  }
  return plan.taps == 1   ? weight_general_kernel<T, 1, 1>
         : plan.taps == 4 ? weight_general_kernel<T, 1, 4>
                          : weight_general_kernel<T, 1, 8>;
}

template <UpToSingle T>
auto kernel_of(const WeightColumnsPlan&) {
  return weight_columns_kernel<T>;
}

}  // namespace gpuopt::conv1d
