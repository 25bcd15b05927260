// Convolutions of few values into many channels: a lane keeps the values under its outputs in registers and
// makes these outputs in one channel after another.
#pragma once

#include "conv1d/conv1d_kernel.cuh"

namespace gpuopt::conv1d {

struct FanArgs {
  const void *from, *weight, *bias;
  void* to;
  int64_t from_batch, from_channel, to_batch, to_channel;
  int64_t weight_group, weight_out, weight_in, weight_tap, bias_stride;
  int64_t from_size, to_size, padding;
  int32_t step, dilation, taps;
  int32_t tile_values;                 // input values under a block's outputs, of one channel
  uint32_t in_channels, out_channels;  // of a group
  uint32_t block_channels;             // output channels of a block
  FastDiv tiles, cycle;  // tiles of outputs of a row; classes of channels, see the kernel
  FastDiv parts, groups;
  Activation activation;
};

// Neighbouring outputs of a lane, stored at once.
template <typename T>
constexpr int kFanOutputs = sizeof(T) == 8 ? 2 : 4;

// Channels `cycle` apart are aligned alike: a block makes outputs of one class of them. The products of taps
// and input channels are at most kProducts.
template <typename T, int kProducts>
__global__ void __launch_bounds__(kThreads, 2) fan_kernel(const __grid_constant__ FanArgs args) {
  using C = compute_t<T>;
  constexpr int P = kFanOutputs<T>, kPitch = kFanPitch<kProducts>;
  extern __shared__ uint4 shared[];
  let_next_grid_start();
  uint32_t image = blockIdx.x;
  const uint32_t tile = args.tiles.divmod(image);
  const uint32_t lane_class = args.cycle.divmod(image);
  const uint32_t part = args.parts.divmod(image);
  const uint32_t group = args.groups.divmod(image);
  const uint32_t cycle = args.cycle.divisor;
  wait_for_grid_before();

  // Weights of the block's channels, one after another, then the input under its outputs.
  C* const taps = reinterpret_cast<C*>(shared);
  C* const values = taps + int64_t{args.block_channels} * kPitch;
  const uint32_t first_channel = lane_class + part * args.block_channels * cycle;
  if (first_channel >= args.out_channels) return;
  const T* weight = static_cast<const T*>(args.weight) + group * args.weight_group +
                    first_channel * args.weight_out;
  for (uint32_t i = threadIdx.x; i < args.block_channels * kPitch; i += kThreads) {
    const uint32_t m = i / kPitch, product = i % kPitch;
    const uint32_t c = product / static_cast<uint32_t>(args.taps);
    const uint32_t k = product - c * args.taps;
    const bool valid = c < args.in_channels && first_channel + m * cycle < args.out_channels;
    taps[i] = valid ? to_compute(weight[int64_t{m} * cycle * args.weight_out + c * args.weight_in +
                                        k * args.weight_tap])
                    : C(0);
  }
  T* to = static_cast<T*>(args.to) + image * args.to_batch +
          (int64_t{group} * args.out_channels + first_channel) * args.to_channel;
  const auto misaligned = static_cast<int32_t>(reinterpret_cast<uintptr_t>(to) / sizeof(T) % P);
  const int64_t first_output = int64_t{tile} * kThreads * P - misaligned;
  const int64_t first_value = first_output * args.step - args.padding;
  for (uint32_t c = 0; c < args.in_channels; ++c) {
    const T* from = static_cast<const T*>(args.from) + image * args.from_batch +
                    (int64_t{group} * args.in_channels + c) * args.from_channel;
    for (int32_t i = threadIdx.x; i < args.tile_values; i += kThreads) {
      const int64_t place = first_value + i;
      const bool valid = static_cast<uint64_t>(place) < static_cast<uint64_t>(args.from_size);
      values[c * args.tile_values + i] = valid ? to_compute(from[place]) : C(0);
    }
  }
  __syncthreads();

  const auto products = static_cast<int32_t>(args.in_channels) * args.taps;
  C window[kProducts][P];
  {
    int32_t offset = static_cast<int32_t>(threadIdx.x) * P * args.step, k = 0;
#pragma unroll
    for (int i = 0; i < kProducts; ++i) {
#pragma unroll
      for (int j = 0; j < P; ++j) {
        window[i][j] = i < products ? values[offset + j * args.step] : C(0);
      }
      offset += args.dilation;
      if (++k == args.taps) {
        k = 0;
        offset += args.tile_values - args.taps * args.dilation;
      }
    }
  }

  const int64_t begin = first_output + int64_t{threadIdx.x} * P;
  if (begin >= args.to_size) return;
  const bool whole = begin >= 0 && begin <= args.to_size - P;
  const T* bias = static_cast<const T*>(args.bias);
  if (bias != nullptr) {
    bias += (int64_t{group} * args.out_channels + first_channel) * args.bias_stride;
  }
  to += begin;
  const uint32_t channels =
      min(args.block_channels, (args.out_channels - first_channel + cycle - 1) / cycle);
#pragma unroll 2
  for (uint32_t m = 0; m < channels; ++m) {
    C own[kPitch];
    constexpr int V = kPackBytes / sizeof(C);
#pragma unroll
    for (int i = 0; i < kPitch; i += V) {
      const auto pack = load_pack<C, V>(taps + m * kPitch + i);
#pragma unroll
      for (int j = 0; j < V; ++j) own[i + j] = pack.values[j];
    }
    C sums[P] = {};
    // Of products that there are not, both factors are 0.
#pragma unroll
    for (int i = 0; i < kProducts; ++i) {
#pragma unroll
      for (int j = 0; j < P; ++j) sums[j] = multiply_add(own[i], window[i][j], sums[j]);
    }
    if (bias != nullptr) {
      const C value = to_compute(bias[int64_t{m} * cycle * args.bias_stride]);
#pragma unroll
      for (int j = 0; j < P; ++j) sums[j] += value;
    }
    activate(sums, args.activation);
    const auto pack = narrow<T, P>(sums);
    if (whole) {
      store_whole(to, pack);
    } else {
#pragma unroll
      for (int j = 0; j < P; ++j) {
        if (static_cast<uint64_t>(begin + j) < static_cast<uint64_t>(args.to_size)) {
          to[j] = pack.values[j];
        }
      }
    }
    to += cycle * args.to_channel;
  }
}

}  // namespace gpuopt::conv1d
