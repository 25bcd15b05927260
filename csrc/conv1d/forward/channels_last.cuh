// Depthwise convolutions of channels-last signals: neighbouring threads have neighbouring channels.
#pragma once

#include "conv1d/device/rows.cuh"
#include "conv1d/forward/channels_last.h"

namespace gpuopt::conv1d {

constexpr int kColumnVecs = 8;       // vectors of channels per block
constexpr int kColumnPositions = 4;  // neighbouring positions per thread
constexpr int kColumnTile = kThreads / kColumnVecs * kColumnPositions;

// Taps per iteration of the sliding window.
template <typename T>
constexpr int kColumnTaps = sizeof(T) == 2 ? 2 : 4;

template <typename T>
constexpr int kColumnChannels = kColumnVecs * kVecSize<T>;

template <typename C, int N>
__device__ __forceinline__ void load_taps(C (&taps)[N], const C* from) {
  constexpr int V = kVecBytes / sizeof(C);
#pragma unroll
  for (int i = 0; i < N; i += V) {
    const auto vec = load_vec<C, V>(from + i);
#pragma unroll
    for (int j = 0; j < V; ++j) taps[i + j] = vec.values[j];
  }
}

// Pointers and strides are multiples of a vector. Shared memory holds taps as [taps,
// kColumnChannels].
template <typename T, bool kSliding>
__global__ void __launch_bounds__(kThreads, 2)
    channels_last_kernel(const __grid_constant__ ChannelsLastArgs args) {
  using C = compute_t<T>;
  constexpr int N = kVecSize<T>, R = kColumnPositions, K = kColumnTaps<T>;
  extern __shared__ uint4 shared[];
  C* const taps = reinterpret_cast<C*>(shared);
  launch_dependents();
  uint32_t image = blockIdx.x;
  const uint32_t channel_tile = args.channel_tiles.divmod(image);
  const uint32_t tile = args.row_tiles.divmod(image);
  const uint32_t tile_channel = channel_tile * kColumnChannels<T>;
  grid_dependency_wait();

  // Load taps.
  const T* const weight = static_cast<const T*>(args.weight);
  for (uint32_t i = threadIdx.x; i < args.taps * kColumnChannels<T>; i += kThreads) {
    const uint32_t k = i / kColumnChannels<T>, channel = tile_channel + i % kColumnChannels<T>;
    taps[i] = channel < args.channels
                  ? to_compute(weight[channel * args.weight_channel + k * args.weight_tap])
                  : C(0);
  }
  __syncthreads();

  const uint32_t own_channel = threadIdx.x % kColumnVecs * N;
  const uint32_t channel = tile_channel + own_channel;
  const int64_t begin = int64_t{tile} * kColumnTile + threadIdx.x / kColumnVecs * kColumnPositions;
  if (channel >= args.channels || begin >= args.to_size) return;
  const T* const from = static_cast<const T*>(args.from) + image * args.from_batch + channel;
  const auto load = [&](int64_t position) {
    const bool valid = static_cast<uint64_t>(position) < static_cast<uint64_t>(args.from_size);
    uint4 words = load_16_bytes(from + position * args.from_stride, valid, /*once=*/false);
    if (!valid) words = uint4{};
    return words;
  };

  // Multiply.
  C sums[R][N] = {};
  const int64_t first = begin * args.step - args.padding;
  if constexpr (kSliding) {
    C window[R + K - 1][N];
    uint4 raw[R + K - 1];
#pragma unroll
    for (int i = 0; i < R + K - 1; ++i) raw[i] = load(first + i);
#pragma unroll
    for (int i = 0; i < R + K - 1; ++i) widen<T>(window[i], vec_of<T>(raw[i]));
    for (int32_t k = 0;; k += K) {
      const int32_t left = args.taps - k;
      uint4 next[K];
      if (left > K) {
#pragma unroll
        for (int i = 0; i < K; ++i) next[i] = load(first + k + R + K - 1 + i);
      }
#pragma unroll
      for (int t = 0; t < K; ++t) {
        if (t < left) {
          C own[N];
          load_taps(own, taps + (k + t) * kColumnChannels<T> + own_channel);
#pragma unroll
          for (int j = 0; j < R; ++j) {
#pragma unroll
            for (int i = 0; i < N; ++i) {
              sums[j][i] = multiply_add(own[i], window[j + t][i], sums[j][i]);
            }
          }
        }
      }
      if (left <= K) break;
#pragma unroll
      for (int i = 0; i < R - 1; ++i) {
#pragma unroll
        for (int j = 0; j < N; ++j) window[i][j] = window[i + K][j];
      }
#pragma unroll
      for (int i = 0; i < K; ++i) widen<T>(window[R - 1 + i], vec_of<T>(next[i]));
    }
  } else {
    for (int32_t k = 0; k < args.taps; ++k) {
      uint4 raw[R];
#pragma unroll
      for (int j = 0; j < R; ++j) raw[j] = load(first + j * args.step + k * args.dilation);
      C own[N];
      load_taps(own, taps + k * kColumnChannels<T> + own_channel);
#pragma unroll
      for (int j = 0; j < R; ++j) {
        C values[N];
        widen<T>(values, vec_of<T>(raw[j]));
#pragma unroll
        for (int i = 0; i < N; ++i) sums[j][i] = multiply_add(own[i], values[i], sums[j][i]);
      }
    }
  }

  // Store.
  T* const to = static_cast<T*>(args.to) + image * args.to_batch + channel;
  C bias[N] = {};
  if (args.bias != nullptr) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      bias[i] = to_compute(static_cast<const T*>(args.bias)[(channel + i) * args.bias_stride]);
    }
  }
#pragma unroll
  for (int j = 0; j < R; ++j) {
    if (args.bias != nullptr) {
#pragma unroll
      for (int i = 0; i < N; ++i) sums[j][i] += bias[i];
    }
    activate<T>(sums[j], args.activation);
    Vec<T, N> vec;
#pragma unroll
    for (int i = 0; i < N; ++i) vec.values[i] = from_compute<T>(sums[j][i]);
    if (begin + j < args.to_size) store_whole(to + (begin + j) * args.to_stride, vec);
  }
}

template <typename T>
cudaError_t launch(const ChannelsLastPlan& plan, void* to, cudaStream_t stream) {
  if constexpr (sizeof(T) == 8) {
    return cudaErrorInvalidValue;
  } else {
    auto args = plan.args;
    args.to = to;
    const auto start = [&](auto kernel) {
      return launch_kernel(kernel, plan.launch, stream, args);
    };
    return plan.slides ? start(channels_last_kernel<T, true>)
                       : start(channels_last_kernel<T, false>);
  }
}

}  // namespace gpuopt::conv1d
