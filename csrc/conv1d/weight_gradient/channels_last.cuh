// Depthwise weight gradients, channels last: a thread slides a vector of channels along a row.
#pragma once

#include "conv1d/device/launch.cuh"
#include "conv1d/weight_gradient/channels_last.h"
#include "conv1d/weight_gradient/sums.cuh"

namespace gpuopt::conv1d {

// Gradients of up to kTaps taps, of stride 1 and without dilation.
template <typename T, int N, int kTaps>
__global__ void __launch_bounds__(kChunkThreads, weight_vec_blocks(sizeof(T), kTaps))
    weight_channels_last_kernel(const __grid_constant__ WeightChannelsLastArgs args) {
  using C = compute_t<T>;
  using Channels = Vec<T, N>;
  constexpr int kWarps = kChunkThreads / 32;
  constexpr int U = N == 1 ? 8 : 4;  // positions whose loads are in flight together
  __shared__ C shared_sums[kWarps][32][N + 1];
  launch_dependents();
  uint32_t tile = blockIdx.x;
  const uint32_t split = args.splits.divmod(tile);
  const uint32_t width = 1u << args.width_shift, rows = kChunkThreads >> args.width_shift;
  const uint32_t row = threadIdx.x >> args.width_shift;
  const uint32_t vec = tile * width + (threadIdx.x & (width - 1));
  grid_dependency_wait();

  C sums[kTaps][N] = {};
  if (vec < args.vecs) {
    const T* const from = static_cast<const T*>(args.from) + int64_t{vec} * N;
    const T* const grad = static_cast<const T*>(args.grad) + int64_t{vec} * N;
    for (uint32_t part = split * rows + row; part < args.parts;
         part += args.splits.divisor * rows) {
      uint32_t image = part;
      const int64_t begin = int64_t{args.row_parts.divmod(image)} * args.part_positions;
      const auto positions =
          static_cast<int32_t>(min(args.grad_size - begin, int64_t{args.part_positions}));
      const T* const from_row = from + image * args.from_batch;
      const T* grad_row = grad + image * args.grad_batch + begin * args.grad_stride;
      int64_t under = begin - args.padding;  // the first tap
      const auto load = [&](int64_t position) {
        const bool valid = static_cast<uint64_t>(position) < static_cast<uint64_t>(args.from_size);
        return valid ? load_vec<T, N>(from_row + position * args.from_stride) : Channels{};
      };
      // The inputs under the taps of U positions.
      Channels window[kTaps + U - 1];
#pragma unroll
      for (int k = 0; k < kTaps - 1; ++k) window[k] = load(under + k);
      // Load and multiply.
#pragma unroll 1
      for (int32_t position = 0; position < positions; position += U) {
        Channels grads[U];
#pragma unroll
        for (int u = 0; u < U; ++u) {
          const bool valid = position + u < positions;
          grads[u] = load_vec<T, N>(grad_row + (valid ? u : 0) * args.grad_stride);
          window[kTaps - 1 + u] = load(under + kTaps - 1 + u);
        }
#pragma unroll
        for (int u = 0; u < U; ++u) {
          if (position + u < positions) {
            C grad_values[N];
            widen(grad_values, grads[u]);
#pragma unroll
            for (int k = 0; k < kTaps; ++k) {
              C values[N];
              widen(values, window[u + k]);
#pragma unroll
              for (int i = 0; i < N; ++i)
                sums[k][i] = multiply_add(grad_values[i], values[i], sums[k][i]);
            }
          }
        }
#pragma unroll
        for (int k = 0; k < kTaps - 1; ++k) window[k] = window[k + U];
        grad_row += U * args.grad_stride;
        under += U;
      }
    }
  }

  // Reduce rows of threads within each warp, then the block's warps.
#pragma unroll
  for (int k = 0; k < kTaps; ++k) {
    for (uint32_t mask = width; mask < 32; mask *= 2) {
#pragma unroll
      for (int i = 0; i < N; ++i) sums[k][i] += shuffle_xor(sums[k][i], static_cast<int>(mask));
    }
    if (k >= args.taps) break;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N; ++i) shared_sums[threadIdx.x / 32][threadIdx.x % 32][i] = sums[k][i];
    __syncthreads();
    for (uint32_t value = threadIdx.x; value < width * N; value += kChunkThreads) {
      const uint32_t lane = value / N, i = value % N;
      const uint32_t channel = (tile * width + lane) * N + i;
      if (channel >= args.vecs * N) break;
      C sum = shared_sums[0][lane][i];
#pragma unroll
      for (int warp = 1; warp < kWarps; ++warp) sum += shared_sums[warp][lane][i];
      emit_weight<T>(args, split, int64_t{channel} * args.taps + k, sum);
    }
  }
}

template <UpToSingle T>
auto kernel_of(const WeightChannelsLastPlan& plan) {
  constexpr int N = kVecSize<T>;
  return plan.values == 1 ? weight_channels_last_kernel<T, 1, 8>
         : plan.taps == 4 ? weight_channels_last_kernel<T, N, 4>
                          : weight_channels_last_kernel<T, N, 8>;
}

}  // namespace gpuopt::conv1d
