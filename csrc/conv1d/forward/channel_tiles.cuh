// Depthwise convolutions of channels-last signals by tiles in shared memory.
//
// fp16 and bf16: the tile is transposed on its way to and from shared memory. In between, a warp
// multiplies the row of a channel with its taps as toeplitz_chunks.cuh says.
//
// f32: a thread has one channel and slides over positions.
#pragma once

#include "conv1d/device/channel_tiles.cuh"
#include "conv1d/device/launch.cuh"
#include "conv1d/forward/channel_tiles.h"
#include "conv1d/forward/toeplitz_chunks.cuh"

namespace gpuopt::conv1d {

// A block's tile.
template <typename T>
struct ChannelTile {
  uint32_t channel;  // the first one
  uint32_t index;    // of the tile in its sequence
  Sequence<const T> from;
  Sequence<T> to;

  __device__ __forceinline__ static ChannelTile of(const ChannelTilesArgs& args) {
    uint32_t image = blockIdx.x;
    const uint32_t channel = args.channel_parts.divmod(image) << args.width_shift;
    const uint32_t index = args.tiles.divmod(image);
    const auto phase = static_cast<int32_t>(args.phases.divmod(image));
    return {
        channel, index,
        Sequence<const T>(static_cast<const T*>(args.from) + image * args.from_batch,
                          args.from_stride, args.from_size, phase - args.padding, args.dilation),
        Sequence<T>(static_cast<T*>(args.to) + image * args.to_batch, args.to_stride, args.to_size,
                    phase, args.dilation)};
  }
};

template <typename T, int kVecs>
__global__ void __launch_bounds__(kThreads, kTileBlocks)
    channel_tiles_kernel(const __grid_constant__ ChannelTilesArgs args) {
  constexpr int kOctets = 16 * kVecs;
  extern __shared__ uint4 shared[];
  launch_dependents();
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t width = 1u << args.width_shift;
  const uint32_t octets = kOctets + 2 * args.matrices - 1;
  const auto tile = ChannelTile<T>::of(args);
  const auto begin = static_cast<int32_t>(tile.index * kOctets * 8);
  const TileRows rows{shared, octets, args.width_shift, tile.channel, args.channels};
  T* const taps = reinterpret_cast<T*>(shared + width * octets + width / 8);
  grid_dependency_wait();

  // Load inputs, and the taps of the warp's channels with zeros around them.
  args.has_vectors ? rows.load<8>(tile.from, begin, octets)
                   : rows.load<1>(tile.from, begin, octets);
  // The warp has every eighth channel.
  const uint32_t left = min(args.channels - tile.channel, width);
  const uint32_t warp_channels = left > warp ? (left - warp + 7) / 8 : 0;
  const auto taps_of = [&](uint32_t i) { return taps + (warp + 8 * i) * args.taps_pitch; };
#pragma unroll 1
  for (uint32_t i = 0; i < warp_channels; ++i) {
    auto* const vecs = reinterpret_cast<uint4*>(taps_of(i));
    for (uint32_t j = lane; j < args.taps_pitch / 8; j += 32) vecs[j] = uint4{};
  }
  __syncwarp();
#pragma unroll 4
  for (uint32_t j = lane; j < warp_channels * args.taps; j += 32) {
    uint32_t i = j;
    const uint32_t k = args.taps_of.divmod(i);
    taps_of(i)[kTapsBefore + k] = static_cast<const T*>(
        args.weight)[(tile.channel + warp + 8 * i) * args.weight_channel + k * args.weight_tap];
  }
  __syncthreads();

  // Multiply.
#pragma unroll 1
  for (uint32_t i = 0; i < warp_channels; ++i) {
    const uint32_t c = warp + 8 * i;
    convolve_chunks<T, kVecs>(rows.row(c), taps_of(i) + kTapsBefore, args,
                              load_bias<T>(args, tile.channel + c));
  }
  __syncthreads();

  // Store.
  args.has_vectors ? rows.store<8>(tile.to, begin, kOctets)
                   : rows.store<1>(tile.to, begin, kOctets);
}

template <typename T>
__global__ void __launch_bounds__(kThreads, kTileBlocks)
    channel_slides_kernel(const __grid_constant__ ChannelTilesArgs args) {
  extern __shared__ uint4 shared[];
  launch_dependents();
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  auto tile = ChannelTile<T>::of(args);
  const uint32_t channel = tile.channel + lane;
  tile.from.first += channel;
  const bool exists = channel < args.channels;
  const auto begin = static_cast<int32_t>(tile.index * kSlidePositions);
  const int32_t most = min(args.taps, static_cast<int32_t>(kSlideTaps));
  auto* const values = reinterpret_cast<float*>(shared);
  // A pitch of 33 puts the taps of a channel, and a tap of 32 channels, into different banks.
  constexpr int kPitch = kTileChannels + 1;
  float* const taps =
      values +
      (kSlidePositions + (most + kSlideStep - 1) / kSlideStep * kSlideStep) * kTileChannels;
  grid_dependency_wait();

  float sums[kSlideSums] = {};
#pragma unroll 1
  for (int32_t first = 0; first < args.taps; first += most) {
    const int32_t count = min(args.taps - first, most);
    if (first > 0) __syncthreads();
    // Load.
    copy_positions(values, tile.from, begin + first,
                   static_cast<int32_t>(kSlidePositions) + count - 1, exists);
#pragma unroll 1
    for (uint32_t c = warp; c < min(args.channels - tile.channel, 32u); c += 8) {
      const T* const weight = static_cast<const T*>(args.weight) +
                              (tile.channel + c) * args.weight_channel + first * args.weight_tap;
      for (auto k = static_cast<int32_t>(lane); k < count; k += 32) {
        copy_async_if(taps + k * kPitch + c, weight + k * args.weight_tap, true);
      }
    }
    wait_for_copies();
    __syncthreads();
    // Multiply.
    slide_over_tile(sums, values + warp * kSlideSums * kTileChannels + lane, taps + lane, kPitch,
                    count);
  }

  // Store.
  if (!exists) return;
  finish<T>(sums, args, load_bias<T>(args, channel));
  const int32_t position = begin + static_cast<int32_t>(warp) * kSlideSums;
  T* to = tile.to.at(position) + channel;
#pragma unroll
  for (int i = 0; i < kSlideSums; ++i) {
    if (position + i < tile.to.high) *to = sums[i];
    to += tile.to.step;
  }
}

template <Half T>
auto kernel_of(const ChannelTilesPlan& plan) {
  return plan.vecs == 1   ? channel_tiles_kernel<T, 1>
         : plan.vecs == 3 ? channel_tiles_kernel<T, 3>
                          : channel_tiles_kernel<T, 5>;
}
template <Single T>
auto kernel_of(const ChannelTilesPlan&) {
  return channel_slides_kernel<T>;
}

}  // namespace gpuopt::conv1d
