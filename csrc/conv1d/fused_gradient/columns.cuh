// All gradients of a depthwise convolution, channels last. A thread slides over the positions of
// neighbouring channels. At position q it loads input and gradient, and computes the result of
// position q - (K - 1), which meets gradients up to q:
//
//   from:  q-3 q-2 q-1 | q | q+1 ... q+4     K = 4
//   grad:  q-3 q-2 q-1 | q | q+1 ... q+4
//          window      |now| loads in flight
//   to:    q-3
#pragma once

#include "conv1d/fused_gradient/fused.h"
#include "conv1d/weight_gradient/sums.cuh"

namespace gpuopt::conv1d {

// Blocks per SM, limited by registers: fp16 needs a few more than bf16.
template <typename T, int K>
constexpr int kColumnBlocks = K == 4 && std::is_same_v<T, __half> ? 3 : 4;

template <typename T, int K, int N>
__global__ void __launch_bounds__(kChunkThreads, kColumnBlocks<T, K>)
    fused_columns_kernel(const __grid_constant__ FusedArgs args) {
  using C = compute_t<T>;
  constexpr int kBytes = N * sizeof(T);
  // Words, so that half types of a vector are not held in a register each.
  using Word = std::conditional_t<kBytes == 2, uint16_t,
                                  std::conditional_t<kBytes == 4, uint32_t, uint64_t>>;
  constexpr int R = K == 3 ? 3 : 4;  // positions whose loads are in flight; a multiple of K
  __shared__ C shared_sums[N * (K + 1)][kChunkThreads];
  launch_dependents();
  const uint32_t width = 1u << args.width_shift, rows = kChunkThreads >> args.width_shift;
  uint32_t split = blockIdx.x;
  const uint32_t tile = args.channel_parts.divmod(split);
  const uint32_t channel = (tile * width + (threadIdx.x & (width - 1))) * N;
  uint32_t image = split * rows + (threadIdx.x >> args.width_shift);
  const auto part = static_cast<int32_t>(args.parts.divmod(image));
  const bool exists = channel < args.channels && image < args.batch;
  grid_dependency_wait();

  C taps[K][N], bias[N];
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const int64_t channel_j = channel + j;
    const T* const weight = static_cast<const T*>(args.weight) + channel_j * args.weight_channel;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      taps[k][j] = to_compute(load_if(weight + k * args.weight_tap, exists));
    }
    bias[j] = to_compute(load_if(static_cast<const T*>(args.bias) + channel_j * args.bias_stride,
                                 exists && args.bias != nullptr));
  }

  const int32_t begin = args.begin + part * args.part_size;
  const int32_t outputs = exists ? min(args.part_size, args.end - begin) : 0;
  const int32_t steps = exists ? outputs + K - 1 : 0;
  const T* from = static_cast<const T*>(args.from) + image * args.from_batch +
                  channel * args.from_channel + (begin - (K - 1)) * args.from_stride;
  const T* grad = static_cast<const T*>(args.grad) + image * args.grad_batch +
                  channel * args.grad_channel + (begin - args.offset) * args.grad_stride;
  T* to = static_cast<T*>(args.to) + image * args.to_batch + channel * args.to_channel +
          begin * args.to_stride;
  // The ends of what this thread reads. Positions below 0 are beyond them, too.
  const auto end_of = [&](int32_t size, int32_t last) {
    return static_cast<uint32_t>(exists ? max(min(size, last), 0) : 0);
  };
  const uint32_t from_end = end_of(args.from_size, begin + steps);
  const uint32_t grad_end = end_of(args.grad_size, begin + steps - args.offset);
  const uint32_t to_end = end_of(args.from_size, begin + outputs);
  // Loads the next position, which the caller gives.
  const auto load_from = [&](int32_t position) {
    const auto loaded = load_word<Word>(from, static_cast<uint32_t>(position) < from_end);
    from += args.from_stride;
    return loaded;
  };
  const auto load_grad = [&](int32_t position) {
    const auto output = static_cast<uint32_t>(position - args.offset);
    const auto loaded = load_word<Word>(grad, output < grad_end);
    grad += args.grad_stride;
    return loaded;
  };
  const auto unpack = [](C(&to)[N], const Word& word) {
    Vec<T, N> vec;
    memcpy(&vec, &word, sizeof(vec));
    widen(to, vec);
  };
  // Position begin + i is at index i % K.
  C x[K][N], g[K][N] = {}, sums[K + 1][N] = {};
  Word next_from[R], next_grad[R];
#pragma unroll
  for (int i = 1; i < K; ++i) unpack(x[i], load_from(begin - K + i));
#pragma unroll
  for (int r = 0; r < R; ++r) {
    next_grad[r] = load_grad(begin + r);
    next_from[r] = load_from(begin + r);
  }
#pragma unroll 1
  for (int32_t i = 0; i < steps; i += R) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const int32_t position = begin + i + r;
      C(&last)[N] = g[r % K];
      unpack(x[r % K], next_from[r]);
      unpack(last, next_grad[r]);
      next_grad[r] = load_grad(position + R);
      next_from[r] = load_from(position + R);
      const bool is_output = static_cast<uint32_t>(position - args.offset) < grad_end;
      if (args.has_silu) {
#pragma unroll
        for (int j = 0; j < N; ++j) {
          C sum = bias[j];
#pragma unroll
          for (int k = 0; k < K; ++k) sum = multiply_add(taps[k][j], x[(r + 1 + k) % K][j], sum);
          last[j] *= silu_derivative<T>(sum);
          if (!is_output) last[j] = C(0);  // beside the gradient, the derivative may be NaN
        }
      }
      if (i + r < outputs && is_output) {  // 0 times an infinite value is NaN
#pragma unroll
        for (int j = 0; j < N; ++j) {
          sums[K][j] += last[j];
#pragma unroll
          for (int k = 0; k < K; ++k) {
            sums[k][j] = multiply_add(last[j], x[(r + 1 + k) % K][j], sums[k][j]);
          }
        }
      }
      if (i + r < K - 1) continue;
      const auto to_position = static_cast<uint32_t>(position - (K - 1));
      if (args.to != nullptr && to_position < to_end) {
        C result[N] = {};
#pragma unroll
        for (int k = 0; k < K; ++k) {
#pragma unroll
          for (int j = 0; j < N; ++j) {
            result[j] = multiply_add(taps[k][j], g[(r - k + K) % K][j], result[j]);
          }
        }
        store_vec(to, narrow<T, N>(result));
      }
      to += args.to_stride;
    }
  }

  if (args.sums == nullptr) return;
#pragma unroll
  for (int k = 0; k <= K; ++k) {
#pragma unroll
    for (int j = 0; j < N; ++j) shared_sums[k * N + j][threadIdx.x] = sums[k][j];
  }
  __syncthreads();
  C* const split_sums = static_cast<C*>(args.sums) + int64_t{split} * args.channels * (K + 1);
  for (uint32_t i = threadIdx.x; i < width * N * (K + 1); i += kChunkThreads) {
    const uint32_t value = i >> args.width_shift, lane = i & (width - 1);
    const uint32_t k = value / N, sum_channel = (tile * width + lane) * N + value % N;
    if (sum_channel >= args.channels) continue;
    C sum = shared_sums[value][lane];
    for (uint32_t row = 1; row < rows; ++row) sum += shared_sums[value][row * width + lane];
    split_sums[k < K ? int64_t{sum_channel} * K + k : int64_t{args.channels} * K + sum_channel] =
        sum;
  }
}

}  // namespace gpuopt::conv1d
