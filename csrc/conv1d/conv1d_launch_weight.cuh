// Plan -> kernel instantiation -> launch, of weight gradients of one dtype.
#pragma once

#include "conv1d/conv1d_launch.cuh"
#include "conv1d/conv1d_launch_fan_gradients.cuh"
#include "conv1d/conv1d_weight_lanes.cuh"
#include "conv1d/conv1d_weight_mma.cuh"
#include "conv1d/conv1d_weight_packs.cuh"

namespace gpuopt::conv1d {

template <typename T>
auto weight_kernel(const Plan& plan) {
  constexpr int kMostTaps = sizeof(T) == 8 ? 16 : 32;  // see plan_backward_weight
  if (plan.path == Path::kColumns) return weight_columns_kernel<T>;
  if (plan.path == Path::kValues) {
    const auto kernel_of = [&](auto taps) {
      constexpr int kTaps = decltype(taps)::value;
      return plan.channels == 4 ? weight_values_kernel<T, kChannels<T>, kTaps>
                                : weight_values_kernel<T, 1, kTaps>;
    };
    return plan.taps == 1   ? kernel_of(std::integral_constant<int, 1>())
           : plan.taps == 4 ? kernel_of(std::integral_constant<int, 4>())
                            : kernel_of(std::integral_constant<int, 8>());
  }
  if (plan.dilated) return weight_rows_kernel<T, kDilatedTaps, true>;
  switch (plan.taps) {
    case 4:
      return weight_rows_kernel<T, 4, false>;
    case 8:
      return weight_rows_kernel<T, 8, false>;
    case 16:
      return weight_rows_kernel<T, 16, false>;
    default:
      return weight_rows_kernel<T, kMostTaps, false>;
  }
}

template <typename T>
cudaError_t start_weight(const Problem& p, const WeightArgs& args, const Plan& plan,
                         cudaStream_t stream) {
  const auto start = [&](auto kernel, const auto& own) {
    const cudaError_t error = allow_shared_bytes(kernel, plan, detail::kSumBytes);
    return error != cudaSuccess ? error : launch_kernel(kernel, shape_of(plan), stream, own);
  };
  if (plan.packed) {
    WeightPackArgs own;
    own.base = args;
    own.packs = static_cast<uint32_t>(args.weights / args.taps / kPackSize<T>);
    own.width_shift = shift_of(plan.row_width);
    own.parts = static_cast<uint32_t>(args.batch * plan.row_tiles);
    own.row_parts = div_by(plan.row_tiles);
    return plan.taps == 4 ? start(weight_packs_kernel<T, 4>, own)
                          : start(weight_packs_kernel<T, 8>, own);
  }
  if constexpr (sizeof(T) < 8) {
    if (plan.path == Path::kFanGradients) return start_fan_weight<T>(p, args, plan, stream);
  }
  if (plan.path != Path::kChunks) return start(weight_kernel<T>(plan), args);
  WeightChunkArgs own;
  own.base = args;
  own.chunks = static_cast<uint32_t>(plan.lanes);
  own.chunk_tiles = static_cast<uint32_t>(plan.warp_tiles);
  own.input_packs = static_cast<uint32_t>(plan.warp_packs);
  own.tap_count = static_cast<uint32_t>(plan.taps);
  own.row_chunks = div_by(plan.row_lanes);
  if constexpr (sizeof(T) == 2) {
    return plan.products == 2   ? start(weight_chunks_kernel<T, MatrixSums<T, 2>>, own)
           : plan.products == 4 ? start(weight_chunks_kernel<T, MatrixSums<T, 4>>, own)
                                : start(weight_chunks_kernel<T, MatrixSums<T, 8>>, own);
  } else {
    constexpr int kMostTaps = sizeof(T) == 8 ? 16 : 32;
    return plan.products == 4    ? start(weight_chunks_kernel<T, LaneSums<T, 4>>, own)
           : plan.products == 8  ? start(weight_chunks_kernel<T, LaneSums<T, 8>>, own)
           : plan.products == 16 ? start(weight_chunks_kernel<T, LaneSums<T, 16>>, own)
                                 : start(weight_chunks_kernel<T, LaneSums<T, kMostTaps>>, own);
  }
}

template <typename T>
cudaError_t launch_weight(const Problem& p, const Plan& plan, Workspace& memory,
                          cudaStream_t stream) {
  WeightArgs args;
  args.from = p.from.data;
  args.grad = p.to.data;
  const Packs from = packs_of(p, p.from), grad = packs_of(p, p.to);
  args.from_first_pack = from.first;
  args.from_last_pack = from.last;
  args.grad_first_pack = grad.first;
  args.grad_last_pack = grad.last;
  args.from_batch = p.from.batch_stride;
  args.from_channel = p.from.channel_stride;
  args.from_stride = p.from.stride;
  args.grad_batch = p.to.batch_stride;
  args.grad_channel = p.to.channel_stride;
  args.grad_stride = p.to.stride;
  args.from_size = p.from.size;
  args.grad_size = p.to.size;
  args.step = p.step;
  args.padding = p.padding;
  args.dilation = p.dilation;
  args.batch = p.batch;
  args.weights = p.groups * p.to.channels * p.from.channels * p.taps;
  // A block has a unit for each thread, of columns for each warp.
  const int64_t apart = plan.splits * (plan.path == Path::kValues ? kThreads : kThreads / 32);
  args.unit_images = apart / p.to.size;
  args.unit_places = apart % p.to.size;
  args.taps = static_cast<uint32_t>(p.taps);
  args.in_channels = static_cast<uint32_t>(p.from.channels);
  args.out_channels = static_cast<uint32_t>(p.to.channels);
  args.splits = div_by(plan.splits);
  args.tap_parts = div_by(plan.tap_parts);
  args.in_parts = div_by(p.from.channels);
  args.out_parts = div_by(plan.tiles);
  args.tiles = static_cast<uint32_t>(ceil_div<int64_t>(p.batch * plan.row_lanes, kThreads));
  args.tile_rows = static_cast<uint32_t>(plan.block_rows);
  args.halo_packs = static_cast<uint32_t>(plan.halo_packs);
  args.row_lanes = div_by(plan.row_lanes);
  args.partial = plan.splits > 1;
  args.to = p.weight.data;
  if (args.partial) {
    const auto sums = static_cast<size_t>(args.weights) * static_cast<size_t>(plan.splits);
    args.to = memory.allocate(sums * sizeof(compute_t<T>));
  }
  const cudaError_t error = start_weight<T>(p, args, plan, stream);
  if (error != cudaSuccess || !args.partial) return error;
  LaunchShape shape;
  shape.blocks = static_cast<unsigned>(ceil_div<int64_t>(args.weights, kThreads / 32));
  shape.threads = kThreads;
  shape.overlaps_before = true;
  return launch_kernel(finish_kernel<T>, shape, stream, static_cast<const compute_t<T>*>(args.to),
                       static_cast<T*>(p.weight.data), args.weights,
                       static_cast<uint32_t>(plan.splits));
}

}  // namespace gpuopt::conv1d
