// Convolutions value by value: any strides, steps and dilations; and their input gradient where the
// step isn't 1.
#pragma once

#include "conv1d/conv1d_kernel.cuh"

namespace gpuopt::conv1d {

struct ValuesArgs {
  const void *from, *weight, *bias;
  void* to;
  int64_t from_batch, from_channel, from_stride, to_batch, to_channel, to_stride;
  int64_t weight_group, weight_out, weight_in, weight_tap, bias_stride;
  int64_t from_size, to_size, step, padding, dilation, taps;
  uint32_t in_channels, out_channels;  // of a group: of `from` and of `to`
  int64_t lanes;                       // of the launch
  FastDiv row_tiles, tiles, groups;    // tiles of a row's places, of a group's output channels
  bool channels_first;                 // neighbouring lanes take neighbouring channels,
  uint32_t width_shift;                // or 2^width_shift of them neighbouring places
  Activation activation;
};

struct ValuesLane {
  int64_t image, place, place_stride;
  uint32_t group, channel;
};

// Places of neighbouring lanes are neighbours, or those of a lane are.
template <int kChannels, int kPlaces>
__device__ __forceinline__ bool find_lane(ValuesLane& lane, const ValuesArgs& args) {
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= args.lanes) return false;
  uint32_t rest, part;
  if (args.channels_first) {
    rest = static_cast<uint32_t>(index);
    part = args.tiles.divmod(rest);
    lane.group = args.groups.divmod(rest);
    lane.place = int64_t{args.row_tiles.divmod(rest)} * kPlaces;
    lane.place_stride = 1;
  } else {
    const uint32_t width = 1u << args.width_shift;
    rest = static_cast<uint32_t>(index >> args.width_shift);
    lane.place =
        int64_t{args.row_tiles.divmod(rest)} * (width * kPlaces) + (threadIdx.x & (width - 1));
    lane.place_stride = width;
    part = args.tiles.divmod(rest);
    lane.group = args.groups.divmod(rest);
  }
  lane.image = rest;
  lane.channel = part * kChannels;
  return true;
}

template <typename T, int kChannels, int kPlaces>
__device__ __forceinline__ void finish_values(compute_t<T> (&sums)[kChannels][kPlaces],
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
      for (int j = 0; j < kPlaces; ++j) sums[m][j] += bias;
    }
    activate(sums[m], args.activation);
#pragma unroll
    for (int j = 0; j < kPlaces; ++j) {
      const int64_t place = lane.place + j * lane.place_stride;
      if (place < args.to_size) to[place * args.to_stride] = from_compute<T>(sums[m][j]);
    }
  }
}

// The first weight of each of a lane's channels; channels that there are not do the first one's
// work.
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

// Taps whose inputs are loaded at once. One after the other they cost a whole latency each where
// rows are short and their inputs not in a cache yet (depthwise (4,497,71), 8 taps, step 5, f32:
// 8.1 us; 4.9 four at a time).
constexpr int kTapsTogether = 4;

// The products with kTaps taps from tap k on, the first of which lies on place `first` of the
// input.
template <typename T, int kChannels, int kPlaces, int kTaps>
__device__ __forceinline__ void add_taps(compute_t<T> (&sums)[kChannels][kPlaces], const T* from,
                                         const T* const (&weights)[kChannels], int64_t first,
                                         int64_t k, const ValuesLane& lane,
                                         const ValuesArgs& args) {
  T values[kTaps][kPlaces], taps[kTaps][kChannels];
#pragma unroll
  for (int t = 0; t < kTaps; ++t) {
#pragma unroll
    for (int j = 0; j < kPlaces; ++j) {
      const int64_t place = first + t * args.dilation + j * lane.place_stride * args.step;
      const bool valid = static_cast<uint64_t>(place) < static_cast<uint64_t>(args.from_size);
      // A tap by itself is left to the compiler, which mixes it with the next channel's.
      if constexpr (kTaps > 1) {
        values[t][j] = load_if(from + place * args.from_stride, valid);
      } else {
        values[t][j] = valid ? from[place * args.from_stride] : T(0);
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
      for (int j = 0; j < kPlaces; ++j) {
        sums[m][j] = multiply_add(to_compute(taps[t][m]), to_compute(values[t][j]), sums[m][j]);
      }
    }
  }
}

template <typename T, int kChannels, int kPlaces>
__global__ void __launch_bounds__(kThreads) values_kernel(const __grid_constant__ ValuesArgs args) {
  using C = compute_t<T>;
  let_next_grid_start();
  wait_for_grid_before();
  ValuesLane lane;
  if (!find_lane<kChannels, kPlaces>(lane, args)) return;
  const T* from = static_cast<const T*>(args.from) + lane.image * args.from_batch +
                  int64_t{lane.group} * args.in_channels * args.from_channel;
  const T* weights[kChannels];
  find_weights(weights, lane, args);
  C sums[kChannels][kPlaces] = {};
  for (uint32_t c = 0; c < args.in_channels; ++c) {
    int64_t first = lane.place * args.step - args.padding, k = 0;
    for (; k + kTapsTogether <= args.taps; k += kTapsTogether) {
      add_taps<T, kChannels, kPlaces, kTapsTogether>(sums, from, weights, first, k, lane, args);
      first += kTapsTogether * args.dilation;
    }
#pragma unroll 2
    for (; k < args.taps; ++k) {
      add_taps<T, kChannels, kPlaces, 1>(sums, from, weights, first, k, lane, args);
      first += args.dilation;
    }
    from += args.from_channel;
#pragma unroll
    for (int m = 0; m < kChannels; ++m) weights[m] += args.weight_in;
  }
  finish_values<T, kChannels, kPlaces>(sums, lane, args);
}

struct GatherValuesArgs {
  ValuesArgs base;
  // Taps `tap_cycle` apart meet the same places, `place_step` apart: the first one is among the
  // first `first_taps`.
  int64_t tap_cycle, place_step, first_taps;
  int64_t dilation_steps, dilation_rest;  // dilation = dilation_steps * step + dilation_rest
  // Where 32 bits hold places:
  FastDiv step, common, cycle;  // common divisor of step and dilation
  uint32_t inverse;             // of the dilation modulo the step, both without the common divisor
  int32_t lead_steps;           // so many steps before a row places are not negative
};

// The first tap over place `reach` - padding of the input, and the gradient's place under it; there
// may be none.
template <typename Index>
struct FirstTap {
  Index tap, place;
};

__device__ __forceinline__ FirstTap<int64_t> find_tap(const GatherValuesArgs& args, int64_t reach) {
  const int64_t step = args.base.step;
  int64_t place = reach / step, rest = reach - place * step, tap = 0;
  for (; rest != 0 && tap < args.first_taps; ++tap) {
    place -= args.dilation_steps;
    rest -= args.dilation_rest;
    if (rest < 0) {
      --place;
      rest += step;
    }
  }
  return {rest == 0 ? tap : args.base.taps, place};
}

__device__ __forceinline__ FirstTap<int32_t> find_tap(const GatherValuesArgs& args, int32_t reach) {
  const auto taps = static_cast<int32_t>(args.base.taps);
  const auto from =
      static_cast<uint32_t>(reach + args.lead_steps * static_cast<int32_t>(args.step.divisor));
  uint32_t steps = from, whole = args.step.divmod(steps);
  if (args.common.divmod(whole) != 0) return {taps, 0};
  uint32_t tap = whole * args.inverse;
  tap = args.cycle.divmod(tap);
  if (tap >= static_cast<uint32_t>(taps)) return {taps, 0};
  const uint32_t place = args.step.div(from - tap * static_cast<uint32_t>(args.base.dilation));
  return {static_cast<int32_t>(tap), static_cast<int32_t>(place) - args.lead_steps};
}

// Input gradients gather: place i of the input is under tap k of output place (i + padding - k *
// dilation) / step where that is whole.
template <typename T, int kChannels, int kPlaces, typename Index>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(const __grid_constant__ GatherValuesArgs own) {
  using C = compute_t<T>;
  let_next_grid_start();
  wait_for_grid_before();
  const ValuesArgs& args = own.base;
  ValuesLane lane;
  if (!find_lane<kChannels, kPlaces>(lane, args)) return;
  const T* const from = static_cast<const T*>(args.from) + lane.image * args.from_batch +
                        int64_t{lane.group} * args.in_channels * args.from_channel;
  const T* weights[kChannels];
  find_weights(weights, lane, args);
  C sums[kChannels][kPlaces] = {};
#pragma unroll
  for (int j = 0; j < kPlaces; ++j) {
    const int64_t reach = lane.place + j * lane.place_stride + args.padding;
    auto [tap, place] = find_tap(own, static_cast<Index>(reach));
    for (; tap < static_cast<Index>(args.taps); tap += static_cast<Index>(own.tap_cycle)) {
      if (place >= 0 && place < static_cast<Index>(args.from_size)) {
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
      place -= static_cast<Index>(own.place_step);
    }
  }
  finish_values<T, kChannels, kPlaces>(sums, lane, args);
}

}  // namespace gpuopt::conv1d
