// Plan -> kernel instantiation -> launch of gradients of many output channels, of one dtype.
#pragma once

#include "conv1d/conv1d_fan_input.cuh"
#include "conv1d/conv1d_fan_weight.cuh"
#include "conv1d/conv1d_launch_args.cuh"

namespace gpuopt::conv1d {

// Steps that hold the padding and all taps before a row, and the rest of its first sector.
inline int64_t lead_steps(const Problem& p) {
  return ceil_div(std::abs(p.padding) + (p.taps - 1) * p.dilation + kSectorBytes, p.step);
}

// `p` is the forward problem whose input is written.
template <typename T>
cudaError_t launch_fan_input(const Problem& p, const Plan& plan, cudaStream_t stream) {
  FanInputArgs args;
  args.grad = p.to.data;
  args.weight = p.weight.data;
  args.to = p.from.data;
  args.grad_batch = p.to.batch_stride;
  args.grad_channel = p.to.channel_stride;
  args.to_batch = p.from.batch_stride;
  args.to_channel = p.from.channel_stride;
  args.weight_group = p.weight.group_stride;
  args.weight_out = p.weight.out_stride;
  args.weight_in = p.weight.in_stride;
  args.weight_tap = p.weight.tap_stride;
  args.grad_size = static_cast<int32_t>(p.to.size);
  args.to_size = static_cast<int32_t>(p.from.size);
  args.padding = static_cast<int32_t>(p.padding);
  args.dilation = static_cast<int32_t>(p.dilation);
  args.taps = static_cast<int32_t>(p.taps);
  args.tap_cycle = static_cast<int32_t>(detail::tap_cycle_of(p));
  const int64_t every = std::gcd(p.step, p.dilation);
  args.every = static_cast<int32_t>(every);
  args.place_step = static_cast<int32_t>(p.dilation / every);
  args.tile_turns = div_by(ceil_div(plan.warp_tiles, every));
  args.lead_steps = static_cast<int32_t>(lead_steps(p));
  args.in_channels = static_cast<uint32_t>(p.from.channels);
  args.out_channels = static_cast<uint32_t>(p.to.channels);
  args.part_channels = static_cast<uint32_t>(plan.channels);
  args.tile_places = static_cast<uint32_t>(plan.warp_tiles);
  args.split_shift = shift_of(plan.splits);
  args.stage_channels = static_cast<uint32_t>(plan.block_channels);
  args.units = static_cast<uint32_t>(plan.lanes);
  args.unit_blocks = div_by(plan.rows);
  args.step = div_by(p.step);
  args.taps_div = div_by(p.taps);
  args.tiles = div_by(plan.row_tiles);
  args.parts = div_by(plan.tap_parts);
  const auto start = [&](auto kernel) {
    const cudaError_t error = allow_shared_bytes(kernel, plan, detail::kFanStatic);
    return error != cudaSuccess ? error : launch_kernel(kernel, shape_of(plan), stream, args);
  };
  if constexpr (sizeof(T) == 2) {
    if (plan.matrices) {
      return plan.products == 16   ? start(fan_input_kernel<T, FanMatrices<T, 1>>)
             : plan.products == 32 ? start(fan_input_kernel<T, FanMatrices<T, 2>>)
                                   : start(fan_input_kernel<T, FanMatrices<T, 4>>);
    }
  }
  return plan.products == 4    ? start(fan_input_kernel<T, FanLanes<T, 4>>)
         : plan.products == 8  ? start(fan_input_kernel<T, FanLanes<T, 8>>)
         : plan.products == 12 ? start(fan_input_kernel<T, FanLanes<T, 12>>)
         : plan.products == 16 ? start(fan_input_kernel<T, FanLanes<T, 16>>)
                               : start(fan_input_kernel<T, FanLanes<T, 32>>);
}

template <typename T>
cudaError_t start_fan_weight(const Problem& p, const WeightArgs& base, const Plan& plan,
                             cudaStream_t stream) {
  FanWeightArgs args;
  args.base = base;
  args.products = static_cast<uint32_t>(p.from.channels * p.taps);
  args.units = static_cast<uint32_t>(plan.lanes);
  args.row_units = div_by(plan.row_lanes);
  args.cycle = div_by(plan.cycle);
  args.taps = div_by(p.taps);
  const auto start = [&](auto kernel) {
    return launch_kernel(kernel, shape_of(plan), stream, args);
  };
  if constexpr (sizeof(T) == 2) {
    const auto start_mma = [&](auto rows, auto shifts) {
      constexpr int R = decltype(rows)::value;
      constexpr bool S = decltype(shifts)::value;
      return plan.products == 8    ? start(fan_weight_mma_kernel<T, R, 1, S>)
             : plan.products == 16 ? start(fan_weight_mma_kernel<T, R, 2, S>)
                                   : start(fan_weight_mma_kernel<T, R, 4, S>);
    };
    using One = std::integral_constant<int, 1>;
    using Four = std::integral_constant<int, 4>;
    if (plan.aligned == 1) {
      return plan.channels == 16 ? start_mma(One(), std::true_type())
                                 : start_mma(Four(), std::true_type());
    }
    return plan.channels == 16 ? start_mma(One(), std::false_type())
                               : start_mma(Four(), std::false_type());
  } else {
    return plan.products == 4   ? start(fan_weight_lanes_kernel<T, 16, 4>)
           : plan.products == 8 ? start(fan_weight_lanes_kernel<T, 8, 8>)
                                : start(fan_weight_lanes_kernel<T, 8, 12>);
  }
}

}  // namespace gpuopt::conv1d
