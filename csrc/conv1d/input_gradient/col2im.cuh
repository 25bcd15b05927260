// Input gradients from many output channels by col2im, the transpose of im2col (Chellapilla, Puri
// and Simard, "High Performance Convolutional Neural Networks for Document Processing"). A product
// is a pair (c, k) of an input channel and a tap.
//
//   columns[(c, k)][j] = sum over o of weight[o][(c, k)] * grad[o][j]         matrix product
//   to[c][j * stride + k * dilation - padding] += columns[(c, k)][j]          col2im
#pragma once

#include "conv1d/device/launch.cuh"
#include "conv1d/input_gradient/col2im_sums.cuh"

namespace gpuopt::conv1d {

// A block computes some input channels of a group and loops over tiles of their positions.
template <typename T, typename Sums>
__global__ void __launch_bounds__(32 * kCol2imWarps, Sums::kBlocks)
    col2im_kernel(const __grid_constant__ Col2imArgs args) {
  using Tap = typename Sums::Tap;
  constexpr uint32_t kThreads = 32 * kCol2imWarps, Q = Sums::kProducts;
  extern __shared__ uint4 shared[];
  // For each position modulo the stride: the first tap that meets it, and this tap's distance in
  // strides.
  __shared__ int32_t first_taps[kCol2imMostStride], steps_of_tap[kCol2imMostStride];
  launch_dependents();
  uint32_t group = blockIdx.x;
  const uint32_t first_tile = args.tile_blocks.divmod(group);
  const uint32_t part = args.parts.divmod(group);
  const uint32_t warp = threadIdx.x / 32, splits = 1u << args.split_shift;
  const uint32_t split = warp % splits, row_part = warp / splits;
  const uint32_t first_channel = part * args.part_channels;
  const uint32_t in_channels = min(args.part_channels, args.in_channels - first_channel);
  const auto step = static_cast<int32_t>(args.step.divisor);
  auto* const taps = reinterpret_cast<Tap*>(shared);
  const uint32_t split_taps = args.stage_channels * Q;
  // Shorter filters have one part, which saves registers.
  const uint32_t tap_parts = Sums::kHasParts ? static_cast<uint32_t>(args.tap_parts) : 1;
  float* const made = reinterpret_cast<float*>(taps + tap_parts * splits * split_taps);
  for (int32_t rest = static_cast<int32_t>(threadIdx.x); rest < step; rest += kThreads) {
    first_taps[rest] = args.taps;
    steps_of_tap[rest] = 0;
  }
  __syncthreads();
  const int32_t met_taps = min(args.taps, args.tap_cycle);
  for (auto k = static_cast<int32_t>(threadIdx.x); k < met_taps; k += kThreads) {
    auto steps = static_cast<uint32_t>(k * args.dilation);
    const uint32_t rest = args.step.divmod(steps);
    first_taps[rest] = k;
    steps_of_tap[rest] = static_cast<int32_t>(steps);
  }
  grid_dependency_wait();

  const T* const weight = static_cast<const T*>(args.weight) + group * args.weight_group +
                          first_channel * args.weight_in;
  // Computed again for each value, for want of registers.
  const auto bias_of = [&](uint32_t c) {
    return load_bias<T>(args, int64_t{group} * args.in_channels + first_channel + c);
  };
  // Copies the taps of all splits' channels from `begin` on. Missing channels are 0.
  const auto stage = [&](uint32_t begin) {
#pragma unroll 1
    for (uint32_t tap_part = 0; tap_part < tap_parts; ++tap_part) {
      const auto first_tap = tap_part * static_cast<uint32_t>(args.part_taps);
      Tap* const part_taps = taps + tap_part * splits * split_taps;
#pragma unroll 8
      for (uint32_t i = threadIdx.x; i < splits * split_taps; i += kThreads) {
        const uint32_t product = i % Q, channel = i / Q, out = begin * splits + channel;
        uint32_t c = product;
        const uint32_t k = args.part_taps_div.divmod(c) + first_tap;
        const T value = load_if(
            weight + out * args.weight_out + c * args.weight_in + k * args.weight_tap,
            c < in_channels && k < static_cast<uint32_t>(args.taps) && out < args.out_channels);
        Tap* const to = part_taps + channel % splits * split_taps +
                        Sums::position_of_tap(channel / splits, product);
        if constexpr (std::is_same_v<Tap, T>) {
          *to = value;
        } else {
          *to = to_compute(value);
        }
      }
    }
  };
  // A split has every `splits`th channel. Channels that far apart are aligned alike.
  const uint32_t channels =
      split < args.out_channels ? (args.out_channels - split + splits - 1) / splits : 0;
  const bool at_once = args.stage_channels * splits >= args.out_channels;
  const int64_t pitch = splits * args.grad_channel;
  // Four values behind each row put the vectors of different threads into different banks.
  const uint32_t row_pitch = kCol2imWarps / splits * Sums::kPositions + 4;
#pragma unroll 1
  for (uint32_t tile = first_tile; tile < args.all_tiles; tile += args.tile_blocks.divisor) {
    uint32_t image = tile;
    const auto begin = static_cast<int32_t>(args.row_tiles.divmod(image) * args.tile_positions);
    // The first position of the gradient that a tap of the tile meets.
    const int32_t reach = begin + args.padding - (args.taps - 1) * args.dilation;
    const int32_t first = static_cast<int32_t>(args.step.div(
                              static_cast<uint32_t>(reach + (args.lead_steps + 1) * step - 1))) -
                          args.lead_steps;
    const T* const rows = static_cast<const T*>(args.grad) + image * args.grad_batch +
                          int64_t{group} * args.out_channels * args.grad_channel;
    const auto ahead_of = [&](uint32_t other) {
      const auto position = reinterpret_cast<uintptr_t>(rows + first) / sizeof(T) +
                            static_cast<uintptr_t>(other * args.grad_channel);
      return static_cast<int32_t>(position % Sums::kAligned);
    };
    const int32_t at = first - ahead_of(split) + static_cast<int32_t>(row_part * Sums::kPositions);
    const T* const grads = rows + split * args.grad_channel;
#pragma unroll 1
    for (uint32_t tap_part = 0; tap_part < tap_parts; ++tap_part) {
      // Columns.
      Sums sums;
#pragma unroll 1
      for (uint32_t some = 0; some * splits < args.out_channels; some += args.stage_channels) {
        if (!at_once || (tile == first_tile && tap_part == 0)) {
          __syncthreads();
          stage(some);
          __syncthreads();
        }
        if (some < channels) {
          sums.add(args, taps + (tap_part * splits + split) * split_taps, grads + some * pitch,
                   pitch, min(args.stage_channels, channels - some), at);
        }
      }

      __syncthreads();
      sums.store(made + split * Q * row_pitch + row_part * Sums::kPositions, row_pitch);
      __syncthreads();
      // Add up and store.
      const auto end = min(static_cast<int32_t>(args.tile_positions), args.to_size - begin);
      T* const to = static_cast<T*>(args.to) + image * args.to_batch +
                    (int64_t{group} * args.in_channels + first_channel) * args.to_channel +
                    begin * args.to_stride;
      float* const added = made + splits * Q * row_pitch;  // sums over the parts of the taps so far
      const auto tap_begin = static_cast<int32_t>(tap_part) * args.part_taps;
      const int32_t tap_end = min(args.taps, tap_begin + args.part_taps);
      // Neighbouring threads have positions `every` apart, so either all of them meet taps, or
      // none.
#pragma unroll 1
      for (uint32_t i = threadIdx.x; i < args.tile_iterations.divisor * args.every; i += kThreads) {
        uint32_t rest_of_every = i;
        const auto iteration = static_cast<int32_t>(args.tile_iterations.divmod(rest_of_every));
        const int32_t position = iteration * args.every + static_cast<int32_t>(rest_of_every);
        if (position >= end) continue;
        auto steps =
            static_cast<uint32_t>(begin + position + args.padding + args.lead_steps * step);
        const uint32_t rest = args.step.divmod(steps);
        const int32_t first_tap = first_taps[rest];
        const int32_t first_under =
            static_cast<int32_t>(steps) - args.lead_steps - steps_of_tap[rest];
#pragma unroll 1
        for (uint32_t c = 0; c < in_channels; ++c) {
          float sum = tap_part > 0 ? added[i] : bias_of(c);
          int32_t under = first_under;
#pragma unroll 1
          for (int32_t k = first_tap; k < tap_end;
               k += args.tap_cycle, under -= args.position_step) {
            if (k < tap_begin ||
                static_cast<uint32_t>(under) >= static_cast<uint32_t>(args.grad_size)) {
              continue;
            }
            const float* made_at =
                made + (c * static_cast<uint32_t>(args.part_taps) + (k - tap_begin)) * row_pitch +
                (under - first);
            for (uint32_t other = 0; other < splits; ++other) {
              sum += made_at[ahead_of(other)];
              made_at += Q * row_pitch;
            }
          }
          if (tap_part + 1 < tap_parts) {
            added[i] = sum;  // of the only channel
          } else {
            to[c * args.to_channel + position * args.to_stride] = from_compute<T>(sum);
          }
        }
      }
    }
  }
}

template <UpToSingle T>
auto kernel_of(const Col2imPlan& plan) {
  if constexpr (sizeof(T) == 2) {
    if (plan.matrices) {
      return plan.products == 16   ? col2im_kernel<T, Col2imMatrices<T, 1>>
             : plan.products == 32 ? col2im_kernel<T, Col2imMatrices<T, 2>>
                                   : col2im_kernel<T, Col2imMatrices<T, 4>>;
    }
  }
  return plan.products == 8    ? col2im_kernel<T, Col2imLanes<T, 8>>
         : plan.products == 16 ? col2im_kernel<T, Col2imLanes<T, 16>>
                               : col2im_kernel<T, Col2imLanes<T, 32>>;
}

}  // namespace gpuopt::conv1d
