// A GEMM per tap on tensor cores. A tile of the signal lies in shared memory once, with a row per
// position. Each tap reads it from another row on. Matrices of taps stream through shared memory.
//
//   A: tap k of 16 channels     B: inputs of 8 positions        D: outputs
//   w[m][c]                  x  x[c][i * stride + k * dilation] summed over k  =  y[m][i]
#pragma once

#include "conv1d/device/tap_gemm.cuh"
#include "conv1d/forward/tap_gemm.h"

namespace gpuopt::conv1d {

// A warp computes kTapGemmPositions x 16 kRows outputs of one split of the taps.
template <typename T, int kRows>
__global__ void __launch_bounds__(32 * kTapGemmWarps, tap_gemm_blocks(kRows))
    tap_gemm_kernel(const __grid_constant__ TapGemmArgs args) {
  constexpr int kParts = kTapGemmPositions / 8;
  extern __shared__ uint4 shared[];
  launch_dependents();
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, threads = blockDim.x;
  uint32_t image = blockIdx.x;
  const uint32_t tile = args.tiles.divmod(image);
  const uint32_t split = args.splits.divmod(image);
  const uint32_t signal = image, group = args.groups.divmod(image);
  const uint32_t first_tap = split * args.split_taps;
  const uint32_t taps = min(args.split_taps, args.taps - first_tap);
  const uint32_t vecs = args.vecs.divisor, pitch = vecs + 1;
  const uint32_t step = static_cast<uint32_t>(args.step);
  const uint32_t dilation = static_cast<uint32_t>(args.dilation);
  const uint32_t begin = tile * (threads / 32) * kTapGemmPositions;
  uint4* const stages = shared + args.tile_rows * pitch;
  const uint32_t tap_pitch = 16 * kRows * pitch, stage_pitch = args.stage_taps * tap_pitch;
  grid_dependency_wait();

  // Load the tile. The rows of the last split may be fewer.
  const int64_t first_row = int64_t{begin} * step + int64_t{first_tap} * dilation;
  const uint4* const from =
      static_cast<const uint4*>(args.from) + (signal * args.from_rows + first_row) * vecs;
  const uint32_t tile_rows = args.tile_rows - (args.split_taps - taps) * dilation;
  for (uint32_t i = threadIdx.x; i < tile_rows * vecs; i += threads) {
    uint32_t row = i;
    const uint32_t v = args.vecs.divmod(row);
    copy_async<uint4, 1>(shared + row * pitch + v, from + i);
  }
  // Starts copying a stage of taps. Channels that do not exist have taps 0.
  const uint4* const weight = static_cast<const uint4*>(args.weight) +
                              (int64_t{group} * args.out_channels * args.taps + first_tap) * vecs;
  const auto copy_stage = [&](uint32_t stage) {
    const uint32_t first = stage * args.stage_taps;
    uint4* const to = stages + stage % kTapGemmStages * stage_pitch;
    if (first < taps) {
      for (uint32_t i = threadIdx.x; i < 16 * kRows * args.stage_vecs.divisor; i += threads) {
        uint32_t m = i;
        const uint32_t rest = args.stage_vecs.divmod(m);
        uint32_t k = rest;
        const uint32_t v = args.vecs.divmod(k);
        copy_async_if(to + k * tap_pitch + m * pitch + v,
                      weight + (int64_t{m} * args.taps + first) * vecs + rest,
                      m < args.out_channels && first + k < taps);
      }
    }
    end_copy_group();
  };
#pragma unroll
  for (uint32_t stage = 0; stage + 1 < kTapGemmStages; ++stage) copy_stage(stage);

  // Multiply. Matrices 2 i and 2 i + 1 of a load are both halves of B for positions 8 i to 8 i + 7.
  float sums[kRows][kParts][4] = {};
  const uint32_t warp_begin = warp * kTapGemmPositions;
  const bool has_positions = begin + warp_begin < static_cast<uint32_t>(args.to_size);
  const uint32_t pair_pitch = 16 * step * pitch;
  const uint4* const warp_inputs =
      shared + (warp_begin + lane / 16 * 8 + lane % 8) * step * pitch + lane / 8 % 2;
  const uint4* const warp_taps = stages + lane % 16 * pitch + lane / 16;
#pragma unroll 1
  for (uint32_t stage = 0; stage * args.stage_taps < taps; ++stage) {
    wait_for_copy_groups<kTapGemmStages - 2>();
    __syncthreads();
    copy_stage(stage + kTapGemmStages - 1);
    if (!has_positions) continue;
    const uint32_t first = stage * args.stage_taps, count = min(args.stage_taps, taps - first);
    const uint4* a_vecs = warp_taps + stage % kTapGemmStages * stage_pitch;
    const uint4* b_vecs = warp_inputs + first * dilation * pitch;
#pragma unroll 1
    for (uint32_t k = 0; k < count; ++k) {
#pragma unroll 2
      for (uint32_t v = 0; v < vecs; v += 2) {
        uint32_t a[kRows][4], b[kParts / 2][4];
#pragma unroll
        for (int m = 0; m < kRows; ++m) load_fragment(a[m], a_vecs + m * 16 * pitch + v);
#pragma unroll
        for (int i = 0; i < kParts / 2; ++i) load_fragment(b[i], b_vecs + i * pair_pitch + v);
#pragma unroll
        for (int i = 0; i < kParts; ++i) {
          const uint32_t b_half[2] = {b[i / 2][i % 2 * 2], b[i / 2][i % 2 * 2 + 1]};
#pragma unroll
          for (int m = 0; m < kRows; ++m) multiply_add_matrices<T>(sums[m][i], a[m], b_half);
        }
      }
      a_vecs += tap_pitch;
      b_vecs += dilation * pitch;
    }
  }

  // Store 16 channels at a time, by way of shared memory.
  float* const made = reinterpret_cast<float*>(shared);
#pragma unroll
  for (int m = 0; m < kRows; ++m) {
    __syncthreads();  // the taps, or other channels, are read
#pragma unroll
    for (int i = 0; i < 4 * kParts; ++i) {
      const uint32_t row = i / 2 % 2 * 8 + lane / 4;
      made[row * kTapGemmPitch + warp_begin + i / 4 * 8 + 2 * (lane % 4) + i % 2] =
          sums[m][i / 4][i % 4];
    }
    __syncthreads();
    const uint32_t channels = min(16u, args.out_channels - min(args.out_channels, 16u * m));
#pragma unroll 1
    for (uint32_t i = 0; i < channels * (kTapGemmPositions / 32); ++i) {
      const uint32_t c = i / (kTapGemmPositions / 32);
      const uint32_t tile_position = i % (kTapGemmPositions / 32) * threads + threadIdx.x;
      const int64_t position = int64_t{begin} + tile_position;
      if (position >= args.to_size) continue;
      const int64_t channel = int64_t{group} * args.out_channels + 16 * m + c;
      const float sum = made[c * kTapGemmPitch + tile_position];
      if (args.partial != nullptr) {
        const int64_t row = int64_t{image} * args.groups.divisor * args.out_channels + channel;
        args.partial[int64_t{split} * args.count + row * args.to_size + position] = sum;
      } else {
        store_result<T>(args.result, image, channel, position, sum);
      }
    }
  }
}

template <typename T>
cudaError_t launch(const TapGemmPlan& plan, void* to, Workspace& workspace, cudaStream_t stream) {
  if constexpr (sizeof(T) != 2) {
    return cudaErrorInvalidValue;
  } else {
    auto args = plan.args;
    args.result.to = to;
    cudaError_t error = copy_channels_last<T>(plan.from, args.from, workspace, stream);
    if (error != cudaSuccess) return error;
    error = copy_channels_last<T>(plan.weight, args.weight, workspace, stream);
    if (error != cudaSuccess) return error;
    const uint32_t splits = args.splits.divisor;
    args.partial =
        splits == 1
            ? nullptr
            : static_cast<float*>(workspace.allocate(size_t{args.count} * splits * sizeof(float)));
    const auto start = [&](auto kernel) {
      return launch_kernel(kernel, plan.launch, stream, args);
    };
    error = plan.rows == 2   ? start(tap_gemm_kernel<T, 2>)
            : plan.rows == 3 ? start(tap_gemm_kernel<T, 3>)
                             : start(tap_gemm_kernel<T, 4>);
    if (error != cudaSuccess || splits == 1) return error;
    return add_splits<T>(args.partial, args.result, args.count, splits,
                         divide_by(int64_t{args.groups.divisor} * args.out_channels),
                         divide_by(args.to_size), stream);
  }
}

}  // namespace gpuopt::conv1d
