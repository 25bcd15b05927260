// Strides other than 1: threads compute neighbouring outputs from inputs in shared memory.
#pragma once

#include "conv1d/device/chunk.cuh"
#include "conv1d/forward/strided.h"

namespace gpuopt::conv1d {

template <typename T>
__global__ void __launch_bounds__(kChunkThreads, 8)
    strided_kernel(const __grid_constant__ ChunkArgs args) {
  using C = compute_t<T>;
  constexpr int kPositions = kStridedOutputs / 32;  // outputs per thread, 32 positions apart
  constexpr int kStep = kVecBytes / static_cast<int>(sizeof(C));  // taps per iteration
  extern __shared__ uint4 shared[];
  __shared__ WarpCopies<1>::Barriers barriers[kChunkThreads / 32];
  launch_dependents();
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t warp = blockIdx.x * (kChunkThreads / 32) + threadIdx.x / 32;
  const uint32_t tap_vecs = args.taps_pitch / kStep;
  uint4* const vecs = shared + threadIdx.x / 32 * args.in_channels * (args.warp_vecs + tap_vecs);
  C* const taps = reinterpret_cast<C*>(vecs + args.in_channels * args.warp_vecs);
  WarpCopies<1> copies(barriers[threadIdx.x / 32]);
  grid_dependency_wait();
  if (warp >= args.warps) return;

  // Load.
  const Chunk<T, kStridedOutputs> chunk(args, warp);
#pragma unroll 1
  for (uint32_t c = 0; c < args.in_channels; ++c) {
    chunk.copy(args, copies, vecs + c * args.warp_vecs, c, static_cast<int32_t>(args.warp_vecs));
#pragma unroll 1
    for (auto k = static_cast<int32_t>(lane); k < args.taps; k += 32) {
      taps[c * args.taps_pitch + k] =
          to_compute(chunk.weight[c * args.weight_in + k * args.weight_tap]);
    }
  }
  const C bias = load_bias<T>(args, chunk.channel);
  copies.wait();
  __syncwarp();

  const auto dilation = static_cast<int32_t>(args.dilation.divisor);
#pragma unroll 1
  for (uint32_t tile = 0; tile < args.warp_tiles; ++tile) {
    const auto first = static_cast<int32_t>(tile * kStridedOutputs + lane);
    // Multiply.
    C sums[kPositions] = {};
#pragma unroll 1
    for (uint32_t c = 0; c < args.in_channels; ++c) {
      const T* input = reinterpret_cast<const T*>(vecs + c * args.warp_vecs) +
                       chunk.ahead(args, c) + first * args.step;
      const C* const channel_taps = taps + c * args.taps_pitch;
#pragma unroll 1
      for (int32_t k = 0; k < args.taps; k += kStep) {
        const auto tap_vec = load_vec<C, kStep>(channel_taps + k);
#pragma unroll
        for (int t = 0; t < kStep; ++t) {
          // Missing taps are skipped: 0 times an infinite value is NaN.
          if (t == 0 || k + t < args.taps) {
#pragma unroll
            for (int j = 0; j < kPositions; ++j) {
              sums[j] =
                  multiply_add(tap_vec.values[t], to_compute(input[j * 32 * args.step]), sums[j]);
            }
          }
          input += dilation;
        }
      }
    }
    // Store.
    finish<T>(sums, args, bias);
#pragma unroll
    for (int j = 0; j < kPositions; ++j) {
      const int32_t position = chunk.begin + first + 32 * j;
      if (static_cast<uint32_t>(position) < static_cast<uint32_t>(args.to_size)) {
        chunk.to[position] = from_compute<T>(sums[j]);
      }
    }
  }
}

template <UpToSingle T>
auto kernel_of(const StridedPlan&) {
  return strided_kernel<T>;
}

}  // namespace gpuopt::conv1d
