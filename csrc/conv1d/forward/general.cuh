// Convolutions of any strides and dilations: a thread reads its inputs one by one.
#pragma once

#include "conv1d/device/rows.cuh"
#include "conv1d/forward/general.h"

namespace gpuopt::conv1d {

struct ValuesLane {
  int64_t image, position, position_stride;
  uint32_t group, channel;
};

// Neighbouring positions belong to neighbouring threads or, if channels_first, to one thread.
template <int kChannels, int kPositions>
__device__ __forceinline__ bool find_lane(ValuesLane& lane, const GeneralArgs& args) {
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= args.lanes) return false;
  uint32_t rest, part;
  if (args.channels_first) {
    rest = static_cast<uint32_t>(index);
    part = args.tiles.divmod(rest);
    lane.group = args.groups.divmod(rest);
    lane.position = int64_t{args.row_tiles.divmod(rest)} * kPositions;
    lane.position_stride = 1;
  } else {
    const uint32_t width = 1u << args.width_shift;
    rest = static_cast<uint32_t>(index >> args.width_shift);
    lane.position =
        int64_t{args.row_tiles.divmod(rest)} * (width * kPositions) + (threadIdx.x & (width - 1));
    lane.position_stride = width;
    part = args.tiles.divmod(rest);
    lane.group = args.groups.divmod(rest);
  }
  lane.image = rest;
  lane.channel = part * kChannels;
  return true;
}

template <typename T, int kChannels, int kPositions>
__device__ __forceinline__ void finish_values(compute_t<T> (&sums)[kChannels][kPositions],
                                              const ValuesLane& lane, const GeneralArgs& args) {
#pragma unroll
  for (int m = 0; m < kChannels; ++m) {
    if (lane.channel + m >= args.out_channels) break;
    const int64_t channel = int64_t{lane.group} * args.out_channels + lane.channel + m;
    const compute_t<T> bias = load_bias<T>(args, channel);
    T* const to = static_cast<T*>(args.to) + lane.image * args.to_batch + channel * args.to_channel;
    finish<T>(sums[m], args, bias);
#pragma unroll
    for (int j = 0; j < kPositions; ++j) {
      const int64_t position = lane.position + j * lane.position_stride;
      if (position < args.to_size) to[position * args.to_stride] = from_compute<T>(sums[m][j]);
    }
  }
}

// The first weight of each of a thread's channels. Missing channels repeat the first channel.
template <typename T, int kChannels>
__device__ __forceinline__ void find_weights(const T* (&weights)[kChannels], const ValuesLane& lane,
                                             const GeneralArgs& args) {
#pragma unroll
  for (int m = 0; m < kChannels; ++m) {
    const uint32_t channel = lane.channel + (lane.channel + m < args.out_channels ? m : 0);
    weights[m] = static_cast<const T*>(args.weight) + lane.group * args.weight_group +
                 channel * args.weight_out;
  }
}

// Taps whose inputs are loaded at once. Loaded one by one, each costs a full memory latency
// (depthwise (4,497,71), 8 taps, stride 5, f32: 8.1 us one by one, 4.9 us by four).
constexpr int kTapsTogether = 4;

// Adds taps k to k + kTaps - 1. Tap k lies on position `first` of the input.
template <typename T, int kChannels, int kPositions, int kTaps>
__device__ __forceinline__ void add_taps(compute_t<T> (&sums)[kChannels][kPositions], const T* from,
                                         const T* const (&weights)[kChannels], int64_t first,
                                         int64_t k, const ValuesLane& lane,
                                         const GeneralArgs& args) {
  T values[kTaps][kPositions], taps[kTaps][kChannels];
#pragma unroll
  for (int t = 0; t < kTaps; ++t) {
#pragma unroll
    for (int j = 0; j < kPositions; ++j) {
      const int64_t position = first + t * args.dilation + j * lane.position_stride * args.step;
      const bool valid = static_cast<uint64_t>(position) < static_cast<uint64_t>(args.from_size);
      // A single tap is left to the compiler, which interleaves it with the next channel's tap.
      if constexpr (kTaps > 1) {
        values[t][j] = load_if(from + position * args.from_stride, valid);
      } else {
        values[t][j] = valid ? from[position * args.from_stride] : T(0);
      }
    }
#pragma unroll
    for (int m = 0; m < kChannels; ++m) taps[t][m] = weights[m][(k + t) * args.weight_tap];
  }
#pragma unroll
  for (int t = 0; t < kTaps; ++t) {
#pragma unroll
    for (int m = 0; m < kChannels; ++m) {
#pragma unroll
      for (int j = 0; j < kPositions; ++j) {
        sums[m][j] = multiply_add(to_compute(taps[t][m]), to_compute(values[t][j]), sums[m][j]);
      }
    }
  }
}

template <typename T, int kChannels, int kPositions>
__global__ void __launch_bounds__(kThreads)
    general_kernel(const __grid_constant__ GeneralArgs args) {
  using C = compute_t<T>;
  launch_dependents();
  grid_dependency_wait();
  ValuesLane lane;
  if (!find_lane<kChannels, kPositions>(lane, args)) return;
  const T* from = static_cast<const T*>(args.from) + lane.image * args.from_batch +
                  int64_t{lane.group} * args.in_channels * args.from_channel;
  const T* weights[kChannels];
  find_weights(weights, lane, args);
  C sums[kChannels][kPositions] = {};
  for (uint32_t c = 0; c < args.in_channels; ++c) {
    int64_t first = lane.position * args.step - args.padding, k = 0;
    for (; k + kTapsTogether <= args.taps; k += kTapsTogether) {
      add_taps<T, kChannels, kPositions, kTapsTogether>(sums, from, weights, first, k, lane, args);
      first += kTapsTogether * args.dilation;
    }
#pragma unroll 2
    for (; k < args.taps; ++k) {
      add_taps<T, kChannels, kPositions, 1>(sums, from, weights, first, k, lane, args);
      first += args.dilation;
    }
    from += args.from_channel;
#pragma unroll
    for (int m = 0; m < kChannels; ++m) weights[m] += args.weight_in;
  }
  finish_values<T, kChannels, kPositions>(sums, lane, args);
}

template <typename T>
auto kernel_of(const GeneralPlan& plan) {
  constexpr int kChannels = sizeof(T) == 8 ? 1 : 4;  // if a thread has several
  return plan.channels == 4 ? general_kernel<T, kChannels, 4> : general_kernel<T, 1, 4>;
}

}  // namespace gpuopt::conv1d
