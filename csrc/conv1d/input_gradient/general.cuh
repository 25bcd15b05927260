// Input gradients of any strides and dilations.
#pragma once

#include "conv1d/forward/general.cuh"
#include "conv1d/input_gradient/general.h"

namespace gpuopt::conv1d {

// The first tap over input position `reach` - padding, and the gradient position that it meets
// there. If there is none, `tap` is at least the number of taps.
template <typename Index>
struct FirstTap {
  Index tap, position;
};

__device__ __forceinline__ FirstTap<int64_t> find_tap(const GeneralGradientArgs& args,
                                                      int64_t reach) {
  const int64_t step = args.step;
  int64_t position = reach / step, rest = reach - position * step, tap = 0;
  for (; rest != 0 && tap < args.first_taps; ++tap) {
    position -= args.dilation_steps;
    rest -= args.dilation_rest;
    if (rest < 0) {
      --position;
      rest += step;
    }
  }
  return {rest == 0 ? tap : args.taps, position};
}

__device__ __forceinline__ FirstTap<int32_t> find_tap(const GeneralGradientArgs& args,
                                                      int32_t reach) {
  const auto taps = static_cast<int32_t>(args.taps);
  const auto from =
      static_cast<uint32_t>(reach + args.lead_steps * static_cast<int32_t>(args.step_div.divisor));
  uint32_t steps = from, whole = args.step_div.divmod(steps);
  if (args.common.divmod(whole) != 0) return {taps, 0};
  // Solve tap * dilation = from (modulo the stride).
  uint32_t tap = whole * args.inverse;
  tap = args.cycle.divmod(tap);
  if (tap >= static_cast<uint32_t>(taps)) return {taps, 0};
  const uint32_t position = args.step_div.div(from - tap * static_cast<uint32_t>(args.dilation));
  return {static_cast<int32_t>(tap), static_cast<int32_t>(position) - args.lead_steps};
}

// Input position i meets tap k at gradient position (i + padding - k * dilation) / stride.
template <typename T, int kChannels, int kPositions, typename Index>
__global__ void __launch_bounds__(kThreads)
    general_gradient_kernel(const __grid_constant__ GeneralGradientArgs args) {
  using C = compute_t<T>;
  launch_dependents();
  grid_dependency_wait();
  ValuesLane lane;
  if (!find_lane<kChannels, kPositions>(lane, args)) return;
  const T* const from = static_cast<const T*>(args.from) + lane.image * args.from_batch +
                        int64_t{lane.group} * args.in_channels * args.from_channel;
  const T* weights[kChannels];
  find_weights(weights, lane, args);
  C sums[kChannels][kPositions] = {};
#pragma unroll
  for (int j = 0; j < kPositions; ++j) {
    const int64_t reach = lane.position + j * lane.position_stride + args.padding;
    auto [tap, position] = find_tap(args, static_cast<Index>(reach));
    for (; tap < static_cast<Index>(args.taps); tap += static_cast<Index>(args.tap_cycle)) {
      if (position >= 0 && position < static_cast<Index>(args.from_size)) {
        const T* value = from + position * args.from_stride;
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
      position -= static_cast<Index>(args.position_step);
    }
  }
  finish_values<T, kChannels, kPositions>(sums, lane, args);
}

template <typename T>
auto kernel_of(const GeneralGradientPlan& plan) {
  if constexpr (sizeof(T) < 8) {
    if (plan.channels > 1) {
      return plan.narrow ? general_gradient_kernel<T, 4, 4, int32_t>
                         : general_gradient_kernel<T, 4, 4, int64_t>;
    }
  }
  return plan.narrow ? general_gradient_kernel<T, 1, 1, int32_t>
                     : general_gradient_kernel<T, 1, 1, int64_t>;
}

}  // namespace gpuopt::conv1d
