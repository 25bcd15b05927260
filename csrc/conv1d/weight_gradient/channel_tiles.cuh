// Depthwise weight gradients of channels-last signals by tiles in shared memory. fp16 and bf16:
// both signals are transposed on the way, and a warp multiplies rows of a channel as in
// weight_chunks. f32: a thread slides over positions. Gradients are its factors, 16 taps its sums.
#pragma once

#include "conv1d/device/channel_tiles.cuh"
#include "conv1d/device/launch.cuh"
#include "conv1d/weight_gradient/channel_tiles.h"
#include "conv1d/weight_gradient/chunk_mma.cuh"

namespace gpuopt::conv1d {

// A block's channels, taps and tiles.
template <typename T>
struct WeightTiles {
  const WeightChannelTilesArgs& args;
  uint32_t split, first_tap, taps, channel;

  __device__ __forceinline__ explicit WeightTiles(const WeightChannelTilesArgs& args) : args(args) {
    uint32_t part = blockIdx.x;
    split = args.splits.divmod(part);
    first_tap = args.tap_parts.divmod(part) * args.tap_count;
    taps = min(args.taps - first_tap, args.tap_count);
    channel = part << args.width_shift;
  }

  // Calls visit(from, grad, begin) for each tile. The first tap of index i of `grad` is over index
  // i of `from`.
  template <typename Visit>
  __device__ __forceinline__ void visit(const Visit& visit) const {
#pragma unroll 1
    for (uint32_t tile = split; tile < args.tiles; tile += args.splits.divisor) {
      uint32_t image = tile;
      const uint32_t index = args.sequence_tiles.divmod(image);
      const auto phase = static_cast<int32_t>(args.phases.divmod(image));
      visit(Sequence<const T>(static_cast<const T*>(args.from) + image * args.from_batch,
                              args.from_stride, args.from_size,
                              phase + static_cast<int32_t>(first_tap * args.dilation_div.divisor) -
                                  static_cast<int32_t>(args.padding),
                              args.dilation_div),
            Sequence<const T>(static_cast<const T*>(args.grad) + image * args.grad_batch,
                              args.grad_stride, args.grad_size, phase, args.dilation_div),
            static_cast<int32_t>(index * args.octets * 8));
    }
  }

  __device__ __forceinline__ void emit(uint32_t c, uint32_t tap, compute_t<T> sum) const {
    emit_weight<T>(args, split, int64_t{channel + c} * args.taps + first_tap + tap, sum);
  }
};

template <typename T, int kMatrices>
__global__ void __launch_bounds__(kThreads, kMatrixTileBlocks)
    weight_channel_tiles_kernel(const __grid_constant__ WeightChannelTilesArgs args) {
  using Sums = MatrixSums<T, kMatrices>;
  extern __shared__ uint4 shared[];
  launch_dependents();
  const WeightTiles<T> tiles(args);
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t width = 1u << args.width_shift;
  const uint32_t input_octets = args.octets + 2 * kMatrices - 1, grad_pitch = args.octets + 1;
  const TileRows inputs{shared, input_octets, args.width_shift, tiles.channel, args.channels};
  const TileRows grads{shared + width * input_octets + width / 8, grad_pitch, args.width_shift,
                       tiles.channel, args.channels};
  auto* const scratch = reinterpret_cast<typename Sums::Scratch*>(grads.row(width));
  auto* const totals = reinterpret_cast<float*>(scratch + kThreads / 32);
  for (uint32_t i = threadIdx.x; i < width * args.tap_count; i += kThreads) totals[i] = 0;
  // A warp has every eighth channel.
  const uint32_t channels = min(args.channels - tiles.channel, width);
  grid_dependency_wait();

  tiles.visit([&](const Sequence<const T>& from, const Sequence<const T>& grad, int32_t begin) {
    // Load.
    __syncthreads();
    // One loop for both signals, since two would need more registers.
#pragma unroll 1
    for (int signal = 0; signal < 2; ++signal) {
      TileRows rows = inputs;
      Sequence<const T> sequence = from;
      uint32_t octets = input_octets;
      if (signal == 1) {
        rows = grads;
        sequence = grad;
        octets = args.octets;
      }
      args.has_vectors ? rows.load<8>(sequence, begin, octets)
                       : rows.load<1>(sequence, begin, octets);
    }
    __syncthreads();
    // Multiply.
#pragma unroll 1
    for (uint32_t c = warp; c < channels; c += kThreads / 32) {
      Sums sums;
      const uint4* const input = inputs.row(c);
      const uint4* const grad_row = grads.row(c);
#pragma unroll 1
      for (uint32_t octet = 0; octet < args.octets; octet += Sums::kTile / 8) {
        sums.add(input + octet, grad_row + octet, /*ahead=*/0, 0, 0, tiles.taps, /*dilation=*/1);
      }
      sums.iteration(scratch[warp], /*ahead=*/0, /*changes=*/true, tiles.taps, /*dilation=*/1);
      sums.add_to(totals + c * args.tap_count, tiles.taps);
    }
  });

  // Store.
#pragma unroll 1
  for (uint32_t c = warp; c < channels; c += kThreads / 32) {
    for (uint32_t tap = lane; tap < tiles.taps; tap += 32) {
      float sum = totals[c * args.tap_count + tap];
      if (sum != sum) {
        // An infinite input may have met a missing gradient (0). Sum again, position by position.
        sum = 0;
        tiles.visit(
            [&](const Sequence<const T>& from, const Sequence<const T>& grad, int32_t begin) {
              const int32_t end = min(begin + static_cast<int32_t>(8 * args.octets), grad.high);
              for (int32_t i = begin; i < end; ++i) {
                const auto under = i + static_cast<int32_t>(tap);
                const T* const value = from.at(under) + tiles.channel + c;
                sum = multiply_add(to_compute(grad.at(i)[tiles.channel + c]),
                                   to_compute(load_if(value, from.has(under))), sum);
              }
            });
      }
      tiles.emit(c, tap, sum);
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads, kTileBlocks)
    weight_channel_slides_kernel(const __grid_constant__ WeightChannelTilesArgs args) {
  constexpr int kPositions = kSlidePositions, kWarps = kThreads / 32;
  extern __shared__ uint4 shared[];
  launch_dependents();
  const WeightTiles<T> tiles(args);
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const bool exists = tiles.channel + lane < args.channels;
  auto* const grads = reinterpret_cast<float*>(shared);
  float* const inputs = grads + kPositions * kTileChannels;
  // Warps share the positions of a tile, and 16 taps each.
  const auto first_tap = static_cast<int32_t>(warp & ((1u << args.tap_shift) - 1)) * kSlideSums;
  const int32_t positions = kPositions / kWarps << args.tap_shift;
  const int32_t first = static_cast<int32_t>(warp >> args.tap_shift) * positions;
  grid_dependency_wait();

  float sums[kSlideSums] = {};
  tiles.visit([&](Sequence<const T> from, Sequence<const T> grad, int32_t begin) {
    // Load.
    from.first += tiles.channel + lane;
    grad.first += tiles.channel + lane;
    __syncthreads();
    copy_positions(grads, grad, begin, kPositions, exists);
    copy_positions(inputs, from, begin, kPositions + (kSlideSums << args.tap_shift), exists);
    wait_for_copies();
    __syncthreads();
    // Multiply.
    const int32_t count = min(positions, grad.high - begin - first);
    if (count > 0) {
      slide_over_tile(sums, inputs + (first + first_tap) * kTileChannels + lane,
                      grads + first * kTileChannels + lane, kTileChannels, count);
    }
  });

  // Reduce over the warps with the same taps and store.
  __syncthreads();
  constexpr int kPitch = kTileChannels + 1;  // so that taps of a channel lie in different banks
  auto* const all = reinterpret_cast<float*>(shared);
#pragma unroll
  for (int i = 0; i < kSlideSums; ++i) all[(warp * kSlideSums + i) * kPitch + lane] = sums[i];
  __syncthreads();
  const uint32_t all_taps = kSlideSums << args.tap_shift;
#pragma unroll 1
  for (uint32_t c = warp; c < min(args.channels - tiles.channel, 32u); c += kWarps) {
    for (uint32_t tap = lane; tap < tiles.taps; tap += 32) {
      float sum = all[tap * kPitch + c];
      for (uint32_t other = tap + all_taps; other < kWarps * kSlideSums; other += all_taps) {
        sum += all[other * kPitch + c];
      }
      tiles.emit(c, tap, sum);
    }
  }
}

template <Half T>
auto kernel_of(const WeightChannelTilesPlan& plan) {
  return plan.matrices == 2   ? weight_channel_tiles_kernel<T, 2>
         : plan.matrices == 4 ? weight_channel_tiles_kernel<T, 4>
                              : weight_channel_tiles_kernel<T, 8>;
}
template <Single T>
auto kernel_of(const WeightChannelTilesPlan&) {
  return weight_channel_slides_kernel<T>;
}

}  // namespace gpuopt::conv1d
