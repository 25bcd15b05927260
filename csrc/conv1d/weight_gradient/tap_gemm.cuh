// A GEMM per tap on tensor cores, summed over positions. A block has neighbouring taps, which read
// the same tile of the signal from another row on. Both operands lie in shared memory with a row
// per position, so ldmatrix transposes them.
//
//   A: gradient of 16 channels     B: inputs of 8 channels           D: sums of tap k
//   grad[o][j]                  x  x[c][j * stride + k * dilation]  =  weight[o][c]
#pragma once

#include "conv1d/device/tap_gemm.cuh"
#include "conv1d/weight_gradient/tap_gemm.h"

namespace gpuopt::conv1d {

// A warp sums 16 kRows x 16 kRows channels of one tap.
template <typename T, int kRows>
__global__ void __launch_bounds__(32 * kTapSumWarps, tap_sum_blocks(kRows))
    weight_tap_gemm_kernel(const __grid_constant__ WeightTapGemmArgs args) {
  constexpr uint32_t kVecs = 2 * kRows, kPitch = kVecs + 1;
  extern __shared__ uint4 shared[];
  launch_dependents();
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, threads = blockDim.x;
  uint32_t group = blockIdx.x;
  const uint32_t first_tap = args.tap_parts.divmod(group) * args.block_taps;
  const uint32_t split = args.splits.divmod(group);
  const uint32_t taps = min(args.block_taps, args.taps - first_tap);
  const uint32_t step = static_cast<uint32_t>(args.step);
  const uint32_t dilation = static_cast<uint32_t>(args.dilation);
  const uint32_t from_vecs = (args.tile_rows - (args.block_taps - taps) * dilation) * kVecs;
  const uint32_t stage_pitch = (kTapGemmPositions + args.tile_rows) * kPitch;
  grid_dependency_wait();

  // Starts copying a chunk: the gradient, then the inputs under it.
  const auto copy_chunk = [&](uint32_t chunk, uint32_t stage) {
    if (chunk < args.all_chunks) {
      uint32_t image = chunk;
      const uint32_t first = args.row_chunks.divmod(image) * kTapGemmPositions;
      const int64_t signal = int64_t{image} * args.groups.divisor + group;
      uint4* const to = shared + stage * stage_pitch;
      const auto copy = [&](uint4* rows, const void* from, int64_t first_row, uint32_t vecs) {
        const uint4* const source = static_cast<const uint4*>(from) + first_row * kVecs;
        for (uint32_t i = threadIdx.x; i < vecs; i += threads) {
          copy_async<uint4, 1>(rows + i / kVecs * kPitch + i % kVecs, source + i);
        }
      };
      copy(to, args.grad, signal * args.grad_rows + first, kTapGemmPositions * kVecs);
      copy(to + kTapGemmPositions * kPitch, args.from,
           signal * args.from_rows + int64_t{first} * step + int64_t{first_tap} * dilation,
           from_vecs);
    }
    end_copy_group();
  };
  const uint32_t apart = args.splits.divisor;
#pragma unroll
  for (uint32_t i = 0; i + 1 < kTapGemmStages; ++i) copy_chunk(split + i * apart, i);

  // Multiply.
  float sums[kRows][2 * kRows][4] = {};
  const bool has_tap = warp < taps;
  const uint32_t grads_at = (lane / 16 * 8 + lane % 8) * kPitch + lane / 8 % 2;
  const uint32_t inputs_at =
      (kTapGemmPositions + lane % 16 * step + warp * dilation) * kPitch + lane / 16;
  uint32_t stage = 0;
#pragma unroll 1
  for (uint32_t chunk = split; chunk < args.all_chunks; chunk += apart) {
    wait_for_copy_groups<kTapGemmStages - 2>();
    __syncthreads();
    copy_chunk(chunk + (kTapGemmStages - 1) * apart, stage == 0 ? kTapGemmStages - 1 : stage - 1);
    const uint4* const tile = shared + stage * stage_pitch;
    stage = stage + 1 == kTapGemmStages ? 0 : stage + 1;
    if (!has_tap) continue;
    const uint32_t first =
        (chunk - args.row_chunks.div(chunk) * args.row_chunks.divisor) * kTapGemmPositions;
    const int32_t left = args.grad_size - static_cast<int32_t>(first);
#pragma unroll 1
    for (int32_t position = 0; position < min(left, kTapGemmPositions); position += 16) {
      uint32_t a[kRows][4], b[kRows][4];
#pragma unroll
      for (int m = 0; m < kRows; ++m) {
        load_transposed(a[m], tile + grads_at + position * kPitch + 2 * m);
      }
#pragma unroll
      for (int n = 0; n < kRows; ++n) {
        load_transposed(b[n], tile + inputs_at + position * step * kPitch + 2 * n);
      }
      if (position + 16 > left) {  // the gradient is 0 beyond its end, but inputs may be infinite
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int32_t grad_position = position + 8 * half + static_cast<int32_t>(2 * (lane % 4));
          const uint32_t mask =
              (grad_position < left ? 0xffffu : 0) | (grad_position + 1 < left ? 0xffff0000u : 0);
#pragma unroll
          for (int n = 0; n < kRows; ++n) {
            b[n][half] &= mask;
            b[n][half + 2] &= mask;
          }
        }
      }
#pragma unroll
      for (int n = 0; n < 2 * kRows; ++n) {
        const uint32_t b_half[2] = {b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]};
#pragma unroll
        for (int m = 0; m < kRows; ++m) multiply_add_matrices<T>(sums[m][n], a[m], b_half);
      }
    }
  }

  // Store 16 output channels at a time, by way of shared memory: taps are neighbours in memory.
  // The sums need less shared memory than the stages.
  constexpr uint32_t kWidth = 16 * kRows, kSumPitch = kTapSumWarps + 1;
  static_assert(16 * kWidth * kSumPitch * sizeof(float) <=
                kTapGemmStages * 2 * kTapGemmPositions * kPitch * sizeof(uint4));
  float* const made = reinterpret_cast<float*>(shared);
#pragma unroll
  for (int m = 0; m < kRows; ++m) {
    __syncthreads();  // the last chunk, or other channels, are read
#pragma unroll
    for (int i = 0; i < 8 * kRows; ++i) {
      const uint32_t o = i / 2 % 2 * 8 + lane / 4, c = i / 4 * 8 + 2 * (lane % 4) + i % 2;
      made[(o * kWidth + c) * kSumPitch + warp] = sums[m][i / 4][i % 4];
    }
    __syncthreads();
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < 16 * kWidth * kTapSumWarps; i += threads) {
      const uint32_t row = i / kTapSumWarps, tap = i % kTapSumWarps;
      const uint32_t o = 16 * m + row / kWidth, c = row % kWidth;
      if (tap >= taps || o >= args.out_channels || c >= args.in_channels) continue;
      const int64_t weight =
          ((int64_t{group} * args.out_channels + o) * args.in_channels + c) * args.taps +
          first_tap + tap;
      const float sum = made[row * kSumPitch + tap];
      if (apart > 1) {
        static_cast<float*>(args.to)[split * args.weights + weight] = sum;
      } else {
        static_cast<T*>(args.to)[weight] = from_compute<T>(sum);
      }
    }
  }
}

template <typename T>
cudaError_t launch(const WeightTapGemmPlan& plan, void* to, Workspace& workspace,
                   cudaStream_t stream) {
  if constexpr (sizeof(T) != 2) {
    return cudaErrorInvalidValue;
  } else {
    auto args = plan.args;
    cudaError_t error = copy_channels_last<T>(plan.from, args.from, workspace, stream);
    if (error != cudaSuccess) return error;
    error = copy_channels_last<T>(plan.grad, args.grad, workspace, stream);
    if (error != cudaSuccess) return error;
    const uint32_t splits = args.splits.divisor;
    const auto weights = static_cast<uint32_t>(args.weights);
    args.to = splits == 1 ? to : workspace.allocate(size_t{weights} * splits * sizeof(float));
    const auto start = [&](auto kernel) {
      return launch_kernel(kernel, plan.launch, stream, args);
    };
    error = plan.rows == 2   ? start(weight_tap_gemm_kernel<T, 2>)
            : plan.rows == 3 ? start(weight_tap_gemm_kernel<T, 3>)
                             : start(weight_tap_gemm_kernel<T, 4>);
    if (error != cudaSuccess || splits == 1) return error;
    const TapGemmResult result{to, nullptr, 0, 0, 1, 1, Activation::kNone};
    return add_splits<T>(args.to, result, weights, splits, FastDiv(1), FastDiv(weights), stream);
  }
}

}  // namespace gpuopt::conv1d
