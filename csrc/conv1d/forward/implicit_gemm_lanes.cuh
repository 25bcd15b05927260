// Implicit GEMM by multiply-adds without tensor cores, for f32. A thread has kGemmLaneChannels
// channels at kParts positions and reads inputs from phases (phases.h), of stride s and dilation d:
//
//   y[m][i] = sum over (c, k) of  w[m][(c, k)] * phase[c][k d % s][i + k d / s]
#pragma once

#include "conv1d/device/phases.cuh"
#include "conv1d/device/rows.cuh"
#include "conv1d/forward/implicit_gemm.h"

namespace gpuopt::conv1d {

// A block loads its taps once and loops over tiles.
template <typename T, int kParts>
__global__ void __launch_bounds__(kThreads, 2)
    implicit_gemm_lanes_kernel(const __grid_constant__ ImplicitGemmArgs args) {
  constexpr uint32_t M = kGemmLaneChannels, V = kVecSize<T>;
  extern __shared__ uint4 shared[];
  launch_dependents();
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, threads = blockDim.x;
  uint32_t group = blockIdx.x;
  const uint32_t first_tile = args.tile_blocks.divmod(group);
  const uint32_t part = args.parts.divmod(group);
  const uint32_t block_channels = args.channel_warps.divisor * M;
  const uint32_t first_channel = part * block_channels;
  const uint32_t channels = min(block_channels, args.out_channels - first_channel);
  const uint32_t products = args.products, tap_pitch = block_channels + V;

  // Shared memory: the taps of each (c, k) side by side, the offset of its input from its output's
  // position, then the inputs.
  T* const taps = reinterpret_cast<T*>(shared);
  auto* const offsets = reinterpret_cast<uint32_t*>(taps + products * tap_pitch);
  T* const inputs = reinterpret_cast<T*>(offsets + products);
  const T* const weight = static_cast<const T*>(args.weight) + group * args.weight_group +
                          first_channel * args.weight_out;
  uint32_t rest = warp;
  const uint32_t warp_first = args.channel_warps.divmod(rest) * M;  // channel within the block
  const uint32_t thread_position = rest * (32 * kParts) + lane;     // position within the tile
  const uint32_t warp_channels = warp_first < channels ? min(M, channels - warp_first) : 0;
  grid_dependency_wait();

  // Load taps.
  for (uint32_t i = threadIdx.x; i < products * block_channels; i += threads) {
    uint32_t m = i;
    const uint32_t product = args.row_taps.divmod(m);
    uint32_t c = product;
    const uint32_t k = args.taps_div.divmod(c);
    copy_async_if(taps + product * tap_pitch + m,
                  weight + int64_t{m} * args.weight_out + c * args.weight_in + k * args.weight_tap,
                  m < channels);
  }
  for (uint32_t i = threadIdx.x; i < products; i += threads) offsets[i] = args.phases.offset_of(i);

#pragma unroll 1
  for (uint32_t tile = first_tile; tile < args.all_tiles; tile += args.tile_blocks.divisor) {
    uint32_t image = tile;
    const int32_t begin = static_cast<int32_t>(args.row_tiles.divmod(image)) * args.positions;
    if (tile != first_tile) __syncthreads();  // the previous tile is read
    // Load inputs.
    const T* const from = static_cast<const T*>(args.from) + image * args.from_batch +
                          int64_t{group} * args.in_channels * args.from_channel;
    copy_phases(inputs, args.phases, args.in_channels, begin * args.step - args.padding,
                args.from_size, args.from_stride,
                [&](uint32_t c) { return from + c * args.from_channel; });
    wait_for_copies();
    __syncthreads();

    // Multiply.
    const auto size = static_cast<uint32_t>(args.to_size - begin);
    if (warp_channels == 0 || thread_position - lane >= size) continue;
    T sums[M][kParts] = {};
    const T* warp_taps = taps + warp_first;
    const T* const thread_inputs = inputs + thread_position;
#pragma unroll(kParts > 4 ? 2 : 4)
    for (uint32_t i = 0; i < products; ++i) {
      const T* const under = thread_inputs + offsets[i];
      T values[kParts];
#pragma unroll
      for (int j = 0; j < kParts; ++j) values[j] = under[32 * j];
#pragma unroll
      for (uint32_t m = 0; m < M; m += V) {
        const auto vec = load_vec<T, V>(warp_taps + m);
#pragma unroll
        for (uint32_t v = 0; v < V; ++v) {
#pragma unroll
          for (int j = 0; j < kParts; ++j) {
            sums[m + v][j] = multiply_add(vec.values[v], values[j], sums[m + v][j]);
          }
        }
      }
      warp_taps += tap_pitch;
    }

    // Store.
    const int64_t channel = int64_t{group} * args.out_channels + first_channel + warp_first;
#pragma unroll
    for (uint32_t m = 0; m < M; ++m) {
      if (args.bias != nullptr && m < warp_channels) {
        const T bias = static_cast<const T*>(args.bias)[(channel + m) * args.bias_stride];
#pragma unroll
        for (int j = 0; j < kParts; ++j) sums[m][j] += bias;
      }
      activate<T>(sums[m], args.activation);
    }
    T* const to = static_cast<T*>(args.to) + image * args.to_batch + channel * args.to_channel +
                  begin * args.to_stride;
    if (args.to_vecs && warp_channels == M) {
#pragma unroll
      for (uint32_t i = 0; i < kParts * M; i += V) {
        const uint32_t j = i / M, position = thread_position + 32 * j;
        if (position >= size) break;
        Vec<T, V> vec;
#pragma unroll
        for (uint32_t v = 0; v < V; ++v) vec.values[v] = sums[i % M + v][j];
        store_whole(to + position * args.to_stride + i % M, vec);
      }
      continue;
    }
#pragma unroll
    for (uint32_t i = 0; i < M * kParts; ++i) {
      const uint32_t m = i / kParts, position = thread_position + i % kParts * 32;
      if (m < warp_channels && position < size) {
        to[m * args.to_channel + position * args.to_stride] = sums[m][i % kParts];
      }
    }
  }
}

}  // namespace gpuopt::conv1d
