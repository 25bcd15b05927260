// Depthwise convolutions of channels-last signals. Neighbouring threads have neighbouring channels,
// so that a warp reads and writes whole sectors at any alignment. A thread keeps its taps and the
// last inputs in registers, and each input is read once:
//
//   from:    i-3 i-2 i-1 | i  i+1 ... i+7 | i+8 ...     position of a thread's channels
//            window        this iteration   loads in flight
//
// With a dilation, a thread takes every dilation-th position.
#pragma once

#include "conv1d/device/launch.cuh"
#include "conv1d/device/rows.cuh"
#include "conv1d/forward/channels_last.h"

namespace gpuopt::conv1d {

// kTaps is the greatest number of taps. The taps of the problem are the last of them.
template <typename T, int N, int kTaps, int R>
__global__ void __launch_bounds__(kThreads, 2)
    channels_last_kernel(const __grid_constant__ ChannelsLastArgs args) {
  using C = compute_t<T>;
  launch_dependents();
  uint32_t sequence = blockIdx.x * kThreads + threadIdx.x;
  if (sequence >= args.threads) return;
  const uint32_t channel = args.vecs.divmod(sequence) * N;
  const auto chunk = static_cast<int32_t>(args.chunks.divmod(sequence));
  const auto phase = static_cast<int32_t>(args.phases.divmod(sequence));
  const auto dilation = static_cast<int32_t>(args.dilation.divisor);
  grid_dependency_wait();

  // Output m of the thread is at position phase + m * dilation. Its taps read inputs m to
  // m + taps - 1, which lie at phase - padding + i * dilation.
  const auto count_to = [&](int32_t position) {  // outputs before a position
    return position <= 0 ? 0
                         : static_cast<int32_t>(
                               args.dilation.div(static_cast<uint32_t>(position + dilation - 1)));
  };
  const int32_t begin = chunk * args.positions;
  const int32_t end = min(begin + args.positions, count_to(args.to_size - phase));
  if (begin >= end) return;
  const int32_t offset = phase - args.padding;
  const int32_t first = max(count_to(-offset), begin);
  const int32_t last = min(count_to(args.from_size - offset), end + args.taps - 1);
  const auto inputs = static_cast<uint32_t>(max(last - first, 0));

  const T* const from = static_cast<const T*>(args.from) + sequence * args.from_batch + channel;
  const int64_t step = args.from_stride * dilation;
  int32_t next = begin + args.taps - kTaps - first;  // the next input to load, from the first on
  const T* address = from + offset * args.from_stride + (next + first) * step;
  using Raw = Vec<T, N>;
  const auto load = [&] {
    const Raw raw = load_vec_if<T, N>(address, static_cast<uint32_t>(next) < inputs);
    ++next;
    address += step;
    return raw;
  };

  C window[kTaps - 1 + R][N];
  Raw ahead[R];
  {
    Raw raw[kTaps - 1];
#pragma unroll
    for (int i = 0; i < kTaps - 1; ++i) raw[i] = load();
#pragma unroll
    for (int i = 0; i < R; ++i) ahead[i] = load();
#pragma unroll
    for (int i = 0; i < kTaps - 1; ++i) widen(window[i], raw[i]);
  }
  C taps[kTaps][N];
  const int32_t unused = kTaps - args.taps;
  const T* const weight = static_cast<const T*>(args.weight) + channel * args.weight_channel;
#pragma unroll
  for (int k = 0; k < kTaps; ++k) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      taps[k][j] = to_compute(
          load_if(weight + j * args.weight_channel + (k - unused) * args.weight_tap, k >= unused));
    }
  }
  C bias[N];
#pragma unroll
  for (int j = 0; j < N; ++j) {
    bias[j] = to_compute(load_if(
        static_cast<const T*>(args.bias) + (channel + j) * args.bias_stride, args.bias != nullptr));
  }

  T* to = static_cast<T*>(args.to) + sequence * args.to_batch + channel +
          (phase + int64_t{begin} * dilation) * args.to_stride;
  const int64_t to_step = args.to_stride * dilation;
  for (int32_t m = begin; m < end; m += R) {
#pragma unroll
    for (int i = 0; i < R; ++i) widen(window[kTaps - 1 + i], ahead[i]);
#pragma unroll
    for (int i = 0; i < R; ++i) ahead[i] = load();
    C sums[R * N] = {};
    const auto add = [&](int k) {
#pragma unroll
      for (int i = 0; i < R; ++i) {
#pragma unroll
        for (int j = 0; j < N; ++j) {
          sums[i * N + j] = multiply_add(taps[k][j], window[i + k][j], sums[i * N + j]);
        }
      }
    };
    // Unused taps are left out, since 0 times infinity is NaN. A branch for each tap would cost
    // more than the products.
#pragma unroll
    for (int group = 0; group < kTaps; group += 4) {
      if (group >= unused) {
#pragma unroll
        for (int k = group; k < group + 4; ++k) add(k);
      } else {
#pragma unroll
        for (int k = group + 1; k < group + 4; ++k) {
          if (k >= unused) add(k);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < R * N; ++i) sums[i] += bias[i % N];
    activate<T>(sums, args.activation);
#pragma unroll
    for (int i = 0; i < R; ++i) {
      if (m + i < end) store_vec(to, narrow<T, N>(sums + i * N));
      to += to_step;
    }
#pragma unroll
    for (int i = 0; i < kTaps - 1; ++i) {
#pragma unroll
      for (int j = 0; j < N; ++j) window[i][j] = window[i + R][j];
    }
  }
}

template <UpToSingle T>
auto kernel_of(const ChannelsLastPlan& plan) {
  constexpr int kFew = kFewColumnTaps, kMost = most_sliding_taps(sizeof(T) == 2);
  if (plan.args.taps <= kFew && plan.values == 1) return channels_last_kernel<T, 1, kFew, 8>;
  if constexpr (sizeof(T) == 2) {
    if (plan.values == 4) return channels_last_kernel<T, 4, kFew, 8>;
    if (plan.values == 2) return channels_last_kernel<T, 2, kMost, 8>;
  }
  return channels_last_kernel<T, 1, kMost, 8>;
}

}  // namespace gpuopt::conv1d
