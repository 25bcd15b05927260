// Plan -> kernel instantiation -> launch, for one dtype.
#pragma once

#include "conv1d/conv1d_columns.cuh"
#include "conv1d/conv1d_fan_mma.cuh"
#include "conv1d/conv1d_few_values.cuh"
#include "conv1d/conv1d_gemm.cuh"
#include "conv1d/conv1d_launch_chunks.cuh"
#include "conv1d/conv1d_rows.cuh"
#include "conv1d/conv1d_update.cuh"
#include "conv1d/conv1d_values.cuh"

namespace gpuopt::conv1d {

template <typename T>
cudaError_t launch_rows(const Problem& p, const Plan& plan, cudaStream_t stream) {
  RowsArgs args;
  set_operands(args, p);
  set_channels(args, p);
  set_rows(args, p);
  args.dilation = static_cast<int32_t>(p.dilation);
  args.rows = static_cast<uint32_t>(plan.rows);
  args.block_rows = static_cast<uint32_t>(plan.block_rows);
  args.halo_packs = static_cast<uint32_t>(plan.halo_packs);
  args.taps_pitch = static_cast<uint32_t>(plan.taps_pitch);
  args.in_taps = static_cast<uint32_t>(p.from.channels * p.taps);
  args.taps_div = div_by(p.taps);
  args.in_div = div_by(p.from.channels);
  args.row_lanes = div_by(plan.row_lanes);
  args.parts = div_by(plan.tiles);
  args.cycle_shift = shift_of(plan.cycle);
  const auto start = [&](auto kernel) {
    return launch_kernel(kernel, shape_of(plan), stream, args);
  };
  constexpr int64_t kItem = sizeof(T);
  if (plan.channels == 4) {
    constexpr int P = channel_outputs(kItem);
    return plan.dilated  ? start(rows_kernel<T, 4, P, Taps::kDilated>)
           : plan.slides ? start(rows_kernel<T, 4, P, Taps::kSliding>)
                         : start(rows_kernel<T, 4, P, Taps::kOneStep>);
  }
  if (plan.wide) {
    constexpr int P = row_outputs(kItem, true, false), kSlid = row_outputs(kItem, true, true);
    return plan.dilated  ? start(rows_kernel<T, 1, P, Taps::kDilated>)
           : plan.slides ? start(rows_kernel<T, 1, kSlid, Taps::kSliding>)
                         : start(rows_kernel<T, 1, P, Taps::kOneStep>);
  }
  constexpr int P = row_outputs(kItem, false, false);
  return plan.dilated  ? start(rows_kernel<T, 1, P, Taps::kDilated>)
         : plan.slides ? start(rows_kernel<T, 1, P, Taps::kSliding>)
                       : start(rows_kernel<T, 1, P, Taps::kOneStep>);
}

template <typename T>
cudaError_t launch_fan(const Problem& p, const Plan& plan, cudaStream_t stream) {
  FanArgs args;
  set_operands(args, p);
  set_channels(args, p);
  args.from_size = p.from.size;
  args.to_size = p.to.size;
  args.padding = p.padding;
  args.step = static_cast<int32_t>(p.step);
  args.dilation = static_cast<int32_t>(p.dilation);
  args.taps = static_cast<int32_t>(p.taps);
  const Packs packs = packs_of(p, p.from);
  args.first_pack = packs.first;
  args.last_pack = packs.last;
  args.row_packs = static_cast<uint32_t>(plan.warp_packs);
  args.block_channels = static_cast<uint32_t>(plan.block_channels);
  args.aligned = static_cast<uint32_t>(plan.aligned);
  args.tiles = div_by(plan.row_tiles);
  args.cycle = div_by(plan.cycle);
  args.parts = div_by(plan.tiles);
  const auto start = [&](auto kernel) {
    return launch_kernel(kernel, shape_of(plan), stream, args);
  };
  if constexpr (sizeof(T) == 2) {
    FanMmaArgs own;
    own.base = args;
    own.turns = static_cast<uint32_t>(plan.warp_tiles);
    const auto start_mma = [&](auto kernel) {
      return launch_kernel(kernel, shape_of(plan), stream, own);
    };
    if (p.activation == Activation::kNone) {
      return plan.products == 1 ? start_mma(fan_mma_kernel<T, 1, false>)
                                : start_mma(fan_mma_kernel<T, 2, false>);
    }
    return plan.products == 1 ? start_mma(fan_mma_kernel<T, 1, true>)
                              : start_mma(fan_mma_kernel<T, 2, true>);
  } else {
    switch (plan.products) {
      case 3:
        return start(fan_kernel<T, 3>);
      case 4:
        return start(fan_kernel<T, 4>);
      case 5:
        return start(fan_kernel<T, 5>);
      case 6:
        return start(fan_kernel<T, 6>);
      case 7:
        return start(fan_kernel<T, 7>);
      case 8:
        return start(fan_kernel<T, 8>);
      case 10:
        return start(fan_kernel<T, 10>);
      case 12:
        return start(fan_kernel<T, 12>);
      default:
        return start(fan_kernel<T, 16>);
    }
  }
}

// Of how many taps of an output, side by side and aligned, all outputs' consist.
template <typename T>
uint32_t tap_values_of(const Problem& p) {
  const int64_t products = p.from.channels * p.taps;
  if (p.weight.tap_stride != 1 || p.weight.in_stride != p.taps) return 1;
  const auto any = reinterpret_cast<uintptr_t>(p.weight.data) / sizeof(T) |
                   static_cast<uint64_t>(products | p.weight.out_stride | p.weight.group_stride);
  return any % 8 == 0 ? 8 : any % 4 == 0 ? 4 : any % 2 == 0 ? 2 : 1;
}

template <typename T>
cudaError_t launch_gemm(const Problem& p, const Plan& plan, cudaStream_t stream) {
  GemmArgs args;
  set_operands(args, p);
  set_strides(args, p);
  set_rows(args, p);
  args.step = static_cast<int32_t>(p.step);
  args.dilation = static_cast<int32_t>(p.dilation);
  args.in_channels = static_cast<uint32_t>(p.from.channels);
  args.out_channels = static_cast<uint32_t>(p.to.channels);
  args.products = static_cast<uint32_t>(p.from.channels * p.taps);
  args.places = static_cast<int32_t>(plan.places);
  args.tap_values = tap_values_of<T>(p);
  args.units = static_cast<uint32_t>(plan.lanes);
  args.unit_blocks = div_by(plan.rows);
  args.tiles = div_by(plan.row_tiles);
  args.parts = div_by(plan.tiles);
  args.taps_div = div_by(p.taps);
  args.row_packs = div_by(plan.warp_packs);
  args.made_packs = div_by(plan.made_packs);
  args.row_taps = div_by(plan.taps_pitch);
  const auto start = [&](auto kernel) {
    const cudaError_t error = allow_shared_bytes(kernel, plan, /*declared=*/0);
    return error != cudaSuccess ? error : launch_kernel(kernel, shape_of(plan), stream, args);
  };
  switch (plan.products) {
    case 1:
      return start(gemm_kernel<T, 1>);
    case 2:
      return start(gemm_kernel<T, 2>);
    case 3:
      return start(gemm_kernel<T, 3>);
    default:
      return start(gemm_kernel<T, 4>);
  }
}

template <typename T>
cudaError_t launch_columns(const Problem& p, const Plan& plan, cudaStream_t stream) {
  ColumnsArgs args;
  set_operands(args, p);
  args.from_stride = p.from.stride;
  args.to_stride = p.to.stride;
  args.weight_channel = p.weight.group_stride;
  args.from_size = p.from.size;
  args.to_size = p.to.size;
  args.step = p.step;
  args.padding = p.padding;
  args.dilation = p.dilation;
  args.taps = static_cast<int32_t>(p.taps);
  args.channels = static_cast<uint32_t>(p.groups);
  args.row_tiles = div_by(plan.row_tiles);
  args.channel_tiles = div_by(plan.tiles);
  const bool slides = (p.step == 1 || p.to.size == 1) && (p.dilation == 1 || p.taps == 1);
  return launch_kernel(slides ? columns_kernel<T, true> : columns_kernel<T, false>, shape_of(plan),
                       stream, args);
}

inline ValuesArgs values_args(const Problem& p, const Plan& plan) {
  ValuesArgs args;
  set_operands(args, p);
  set_channels(args, p);
  args.from_stride = p.from.stride;
  args.to_stride = p.to.stride;
  args.from_size = p.from.size;
  args.to_size = p.to.size;
  args.step = p.step;
  args.padding = p.padding;
  args.dilation = p.dilation;
  args.taps = p.taps;
  args.lanes = plan.lanes;
  args.row_tiles = div_by(plan.row_tiles);
  args.tiles = div_by(plan.tiles);
  args.channels_first = plan.channels_first;
  args.width_shift = shift_of(plan.row_width);
  return args;
}

template <typename T>
cudaError_t launch_few_values(const Problem& p, const Plan& plan, cudaStream_t stream) {
  const auto narrow = [](int64_t value) { return static_cast<int32_t>(value); };
  FewValuesArgs args;
  args.from = p.from.data;
  args.weight = p.weight.data;
  args.bias = p.bias;
  args.to = p.to.data;
  args.from_batch = narrow(p.from.batch_stride);
  args.from_group = narrow(p.from.channels * p.from.channel_stride);
  args.from_channel = narrow(p.from.channel_stride);
  args.from_stride = narrow(p.from.stride);
  args.to_batch = narrow(p.to.batch_stride);
  args.to_channel = narrow(p.to.channel_stride);
  args.to_stride = narrow(p.to.stride);
  args.weight_group = narrow(p.weight.group_stride);
  args.weight_out = narrow(p.weight.out_stride);
  args.weight_in = narrow(p.weight.in_stride);
  args.weight_tap = narrow(p.weight.tap_stride);
  args.bias_stride = narrow(p.bias_stride);
  args.from_size = narrow(p.from.size);
  args.step = narrow(p.step);
  args.padding = narrow(p.padding);
  args.dilation = narrow(p.dilation);
  args.products = narrow(p.from.channels * p.taps);
  args.part_products = narrow(plan.products);
  args.outputs = static_cast<uint32_t>(p.batch * p.groups * p.to.channels * p.to.size);
  args.width_shift = shift_of(plan.row_width);
  const FastDiv places = div_by(p.to.size), channels = div_by(p.groups * p.to.channels);
  args.inner = plan.channels_first ? channels : places;
  args.outer = plan.channels_first ? places : channels;
  args.channels_first = plan.channels_first;
  args.group_channels = div_by(p.to.channels);
  args.taps = div_by(p.taps);
  args.activation = p.activation;
  const auto start = [&](auto kernel) {
    return launch_kernel(kernel, shape_of(plan), stream, args);
  };
  const int own = plan.products;
  if (p.from.channels > 1) {
    return own <= 8    ? start(few_values_kernel<T, 8, false>)
           : own <= 16 ? start(few_values_kernel<T, 16, false>)
                       : start(few_values_kernel<T, 24, false>);
  }
  return own <= 4    ? start(few_values_kernel<T, 4, true>)
         : own <= 8  ? start(few_values_kernel<T, 8, true>)
         : own <= 16 ? start(few_values_kernel<T, 16, true>)
                     : start(few_values_kernel<T, 24, true>);
}

template <typename T>
cudaError_t launch_forward(const Problem& p, const Plan& plan, cudaStream_t stream) {
  switch (plan.path) {
    case Path::kChunks:
      return launch_chunks<T>(p, plan, stream);
    case Path::kRows:
      return launch_rows<T>(p, plan, stream);
    case Path::kFan:
      return launch_fan<T>(p, plan, stream);
    case Path::kGemm:
      if constexpr (sizeof(T) == 2) return launch_gemm<T>(p, plan, stream);
      return cudaErrorInvalidValue;
    case Path::kColumns:
      return launch_columns<T>(p, plan, stream);
    default:
      if (plan.few_values) return launch_few_values<T>(p, plan, stream);
      return launch_kernel(
          plan.channels == 4 ? values_kernel<T, kChannels<T>, 4> : values_kernel<T, 1, 4>,
          shape_of(plan), stream, values_args(p, plan));
  }
}

template <typename T>
cudaError_t launch_update(const UpdateProblem& p, cudaStream_t stream) {
  LaunchShape shape;
  shape.blocks = static_cast<unsigned>(ceil_div<int64_t>(p.batch * p.channels, kThreads));
  shape.threads = kThreads;
  shape.overlaps_before = true;
  return launch_kernel(update_kernel<T>, shape, stream, p);
}

}  // namespace gpuopt::conv1d
