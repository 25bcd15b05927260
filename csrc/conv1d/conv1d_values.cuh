// Convolutions value by value: any strides, steps and dilations; and their input gradient where the step isn't 1.
#pragma once

#include "conv1d/conv1d_kernel.cuh"

namespace gpuopt::conv1d {

struct ValuesArgs {
  const void *from, *weight, *bias;
  void* to;
  int64_t from_batch, from_channel, from_stride, to_batch, to_channel, to_stride;
  int64_t weight_group, weight_out, weight_in, weight_tap, bias_stride;
  int64_t from_size, to_size, step, padding, dilation, taps;
  // Gradients: taps `tap_cycle` apart meet the same places, `place_step` apart.
  int64_t tap_cycle, place_step;
  int64_t dilation_steps, dilation_rest;  // dilation = dilation_steps * step + dilation_rest
  uint32_t in_channels, out_channels;     // of a group: of `from` and of `to`
  int64_t lanes;                          // of the launch
  FastDiv row_tiles, tiles,
      groups;            // tiles of places of a row; of kChannels output channels of a group
  bool channels_first;   // neighbouring lanes take neighbouring channels,
  uint32_t width_shift;  // or 2^width_shift of them neighbouring places
  Activation activation;
};

// Places of a lane.
constexpr int kValuePlaces = 4;

struct ValuesLane {
  int64_t image, place, place_stride;
  uint32_t group, channel;
};

// Places of neighbouring lanes are neighbours, or those of a lane are.
template <int kChannels>
__device__ __forceinline__ bool find_lane(ValuesLane& lane, const ValuesArgs& args) {
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= args.lanes) return false;
  uint32_t rest, part;
  if (args.channels_first) {
    rest = static_cast<uint32_t>(index);
    part = args.tiles.divmod(rest);
    lane.group = args.groups.divmod(rest);
    lane.place = int64_t{args.row_tiles.divmod(rest)} * kValuePlaces;
    lane.place_stride = 1;
  } else {
    const uint32_t width = 1u << args.width_shift;
    rest = static_cast<uint32_t>(index >> args.width_shift);
    lane.place =
        int64_t{args.row_tiles.divmod(rest)} * (width * kValuePlaces) + (threadIdx.x & (width - 1));
    lane.place_stride = width;
    part = args.tiles.divmod(rest);
    lane.group = args.groups.divmod(rest);
  }
  lane.image = rest;
  lane.channel = part * kChannels;
  return true;
}

template <typename T, int kChannels>
__device__ __forceinline__ void finish_values(compute_t<T> (&sums)[kChannels][kValuePlaces],
                                              const ValuesLane& lane, const ValuesArgs& args) {
  using C = compute_t<T>;
#pragma unroll
  for (int m = 0; m < kChannels; ++m) {
    if (lane.channel + m >= args.out_channels) break;
    const int64_t channel = int64_t{lane.group} * args.out_channels + lane.channel + m;
    const C bias = args.bias == nullptr
                       ? C(0)
                       : to_compute(static_cast<const T*>(args.bias)[channel * args.bias_stride]);
    T* const to = static_cast<T*>(args.to) + lane.image * args.to_batch + channel * args.to_channel;
    if (args.bias != nullptr) {
#pragma unroll
      for (int j = 0; j < kValuePlaces; ++j) sums[m][j] += bias;
    }
    activate(sums[m], args.activation);
#pragma unroll
    for (int j = 0; j < kValuePlaces; ++j) {
      const int64_t place = lane.place + j * lane.place_stride;
      if (place < args.to_size) to[place * args.to_stride] = from_compute<T>(sums[m][j]);
    }
  }
}

// The first weight of each of a lane's channels; channels that there are not do the first one's work.
template <typename T, int kChannels>
__device__ __forceinline__ void find_weights(const T* (&weights)[kChannels], const ValuesLane& lane,
                                             const ValuesArgs& args) {
#pragma unroll
  for (int m = 0; m < kChannels; ++m) {
    const uint32_t channel = lane.channel + (lane.channel + m < args.out_channels ? m : 0);
    weights[m] = static_cast<const T*>(args.weight) + lane.group * args.weight_group +
                 channel * args.weight_out;
  }
}

template <typename T, int kChannels>
__global__ void __launch_bounds__(kThreads) values_kernel(const __grid_constant__ ValuesArgs args) {
  using C = compute_t<T>;
  let_next_grid_start();
  wait_for_grid_before();
  ValuesLane lane;
  if (!find_lane<kChannels>(lane, args)) return;
  const T* from = static_cast<const T*>(args.from) + lane.image * args.from_batch +
                  int64_t{lane.group} * args.in_channels * args.from_channel;
  const T* weights[kChannels];
  find_weights(weights, lane, args);
  C sums[kChannels][kValuePlaces] = {};
  for (uint32_t c = 0; c < args.in_channels; ++c) {
    int64_t first = lane.place * args.step - args.padding;
#pragma unroll 2
    for (int64_t k = 0; k < args.taps; ++k) {
      C values[kValuePlaces];
#pragma unroll
      for (int j = 0; j < kValuePlaces; ++j) {
        const int64_t place = first + j * lane.place_stride * args.step;
        const bool valid = static_cast<uint64_t>(place) < static_cast<uint64_t>(args.from_size);
        values[j] = valid ? to_compute(from[place * args.from_stride]) : C(0);
      }
#pragma unroll
      for (int m = 0; m < kChannels; ++m) {
        const C tap = to_compute(weights[m][k * args.weight_tap]);
#pragma unroll
        for (int j = 0; j < kValuePlaces; ++j) {
          sums[m][j] = multiply_add(tap, values[j], sums[m][j]);
        }
      }
      first += args.dilation;
    }
    from += args.from_channel;
#pragma unroll
    for (int m = 0; m < kChannels; ++m) weights[m] += args.weight_in;
  }
  finish_values<T, kChannels>(sums, lane, args);
}

// Input gradients gather: place i of the input is under tap k of output place (i + padding - k * dilation)
// / step where that is whole.
template <typename T, int kChannels>
__global__ void __launch_bounds__(kThreads) gather_kernel(const __grid_constant__ ValuesArgs args) {
  using C = compute_t<T>;
  let_next_grid_start();
  wait_for_grid_before();
  ValuesLane lane;
  if (!find_lane<kChannels>(lane, args)) return;
  const T* const from = static_cast<const T*>(args.from) + lane.image * args.from_batch +
                        int64_t{lane.group} * args.in_channels * args.from_channel;
  const T* weights[kChannels];
  find_weights(weights, lane, args);
  C sums[kChannels][kValuePlaces] = {};
#pragma unroll
  for (int j = 0; j < kValuePlaces; ++j) {
    const int64_t reach = lane.place + j * lane.place_stride + args.padding;
    int64_t place = reach / args.step, rest = reach - place * args.step, tap = 0;
    for (; rest != 0 && tap < args.tap_cycle; ++tap) {
      place -= args.dilation_steps;
      rest -= args.dilation_rest;
      if (rest < 0) {
        --place;
        rest += args.step;
      }
    }
    if (tap == args.tap_cycle) continue;
    for (; tap < args.taps; tap += args.tap_cycle, place -= args.place_step) {
      if (static_cast<uint64_t>(place) >= static_cast<uint64_t>(args.from_size)) continue;
      const T* value = from + place * args.from_stride;
      int64_t offset = tap * args.weight_tap;
      for (uint32_t c = 0; c < args.in_channels; ++c) {
        const C grad = to_compute(*value);
#pragma unroll
        for (int m = 0; m < kChannels; ++m) {
          sums[m][j] = multiply_add(to_compute(weights[m][offset]), grad, sums[m][j]);
        }
        value += args.from_channel;
        offset += args.weight_in;
      }
    }
  }
  finish_values<T, kChannels>(sums, lane, args);
}

}  // namespace gpuopt::conv1d
