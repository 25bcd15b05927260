// All gradients of a depthwise convolution, of contiguous rows. A segment of a warp goes through a
// part of a row from right to left, a tile at a time. A thread has neighbouring values; the halos
// of inputs and gradients are values of the threads beside it:
//
//   from:  | halo | N values   |          halo: from the thread on the left, or from memory
//   grad:         | N values   | halo |   halo: from the thread on the right, or the last tile
//   to:           | N values   |
#pragma once

#include "common/recomputed.cuh"
#include "conv1d/fused_gradient/fused.h"
#include "conv1d/weight_gradient/sums.cuh"

namespace gpuopt::conv1d {

// Loads values of a row one by one, from position `begin` on. Values outside are 0.
template <int Count, typename T>
__device__ __forceinline__ void load_edge(compute_t<T>* to, const T* values, int32_t begin,
                                          int32_t size) {
  T loaded[Count];
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    const auto position = static_cast<uint32_t>(begin + i);
    loaded[i] = load_if(values + i, position < static_cast<uint32_t>(size));
  }
#pragma unroll
  for (int i = 0; i < Count; ++i) to[i] = to_compute(loaded[i]);
}

template <typename T, int K>
__global__ void __launch_bounds__(kChunkThreads, sizeof(T) == 8 ? 4 : 6)
    fused_rows_kernel(const __grid_constant__ FusedArgs args) {
  using C = compute_t<T>;
  constexpr int V = kVecSize<T>, N = fused_values(sizeof(T)), H = K - 1;  // H: size of a halo
  struct Tile {
    uint4 from[N / V], grad[N / V];  // words, so that nothing waits for values before their use
    T halo[H];
    bool whole;  // whether all values lie in both rows
  };
  launch_dependents();
  const int32_t width = 1 << args.width_shift;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) & (width - 1);
  uint32_t image = (blockIdx.x * kChunkThreads + threadIdx.x) >> args.width_shift;
  const auto part = static_cast<int32_t>(args.parts.divmod(image));
  const uint32_t channel = args.channel_parts.divmod(image);
  // All threads of a warp take part in its exchanges, so those without a row go along.
  const bool exists = image < args.batch;
  grid_dependency_wait();

  const T* const weight = static_cast<const T*>(args.weight) + channel * args.weight_channel;
  C taps[K], sums[K + 1] = {};
#pragma unroll
  for (int k = 0; k < K; ++k) taps[k] = to_compute(load_if(weight + k * args.weight_tap, exists));
  const C bias = to_compute(load_if(static_cast<const T*>(args.bias) + channel * args.bias_stride,
                                    exists && args.bias != nullptr));

  // This thread's position in the last tile. Vectors of `to` are aligned.
  // The tile behind the part, if there is one, gives the halo of the part's last tile.
  const int32_t first = part * args.part_size;
  int32_t left = min(args.part_size, args.tiles - 1 - first);  // tiles after this one
  T* const to = static_cast<T*>(args.to) + image * args.to_batch + channel * args.to_channel;
  const auto address = reinterpret_cast<uintptr_t>(to + args.begin);
  int32_t position = args.begin - static_cast<int32_t>(address / sizeof(T) % V) +
                     ((first + left) * width + lane) * N;
  const T* from = static_cast<const T*>(args.from) + image * args.from_batch +
                  channel * args.from_channel + position;
  const T* grad = static_cast<const T*>(args.grad) + image * args.grad_batch +
                  channel * args.grad_channel + (position - args.offset);
  const int32_t from_size = exists ? args.from_size : 0, grad_size = exists ? args.grad_size : 0;
  const int32_t halo_size = lane == 0 ? from_size : 0;
  const bool aligned =
      (reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(grad)) % kVecBytes == 0;
  const int32_t whole_end =
      recomputed(aligned ? min(from_size, grad_size + args.offset) - (N - 1) : 0);
  const auto is_output = [&](int32_t at) {
    return static_cast<uint32_t>(at - args.offset) < static_cast<uint32_t>(grad_size);
  };
  const auto load = [&] {
    Tile loaded;
    const bool needed = left < args.part_size || lane == 0;
    loaded.whole = needed && position >= 0 && position >= args.offset && position < whole_end;
#pragma unroll
    for (int i = 0; i < N / V; ++i) {
      loaded.from[i] = load_16_bytes(from + V * i, loaded.whole, /*once=*/true);
      loaded.grad[i] = load_16_bytes(grad + V * i, loaded.whole, /*once=*/true);
    }
#pragma unroll
    for (int h = 0; h < H; ++h) {
      const auto before = static_cast<uint32_t>(position - H + h);
      loaded.halo[h] = load_if(from - H + h, before < static_cast<uint32_t>(halo_size));
    }
    return loaded;
  };

  C carry[H] = {};  // the halo of the last thread
  const auto lane_on_right = static_cast<int>(threadIdx.x % 32 - lane + ((lane + 1) & (width - 1)));
  Tile next = load();
#pragma unroll 1
  while (left >= 0) {
    const Tile now = next;
    const int32_t begin = position;
    const bool is_in_part = left < args.part_size;
    if (--left >= 0) {
      position -= width * N;
      from -= width * N;
      grad -= width * N;
      next = load();
    }

    // Multiply by the derivative.
    C x[H + N], g[N + H];
    if (now.whole) {
#pragma unroll
      for (int i = 0; i < N / V; ++i) {
        widen(x + H + V * i, vec_of<T>(now.from[i]));
        widen(g + V * i, vec_of<T>(now.grad[i]));
      }
    } else {
      const bool needed = is_in_part || lane == 0;
      load_edge<N>(x + H, from + (begin - position), begin, needed ? from_size : 0);
      load_edge<N>(g, grad + (begin - position), begin - args.offset, needed ? grad_size : 0);
    }
#pragma unroll
    for (int h = 0; h < H; ++h) {
      const C left = shuffle_up(x[N + h], 1);
      x[h] = lane == 0 ? to_compute(now.halo[h]) : left;
    }
    if (args.has_silu) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        C sum = bias;
#pragma unroll
        for (int k = 0; k < K; ++k) sum = multiply_add(taps[k], x[i + k], sum);
        g[i] *= silu_derivative<T>(sum);
      }
      if (!now.whole) {  // beside the gradient, the derivative may be NaN
#pragma unroll
        for (int i = 0; i < N; ++i) {
          if (!is_output(begin + i)) g[i] = C(0);
        }
      }
    }
#pragma unroll
    for (int h = 0; h < H; ++h) {
      const C right = shuffle_from(g[h], lane_on_right);
      g[N + h] = lane == width - 1 ? carry[h] : right;
      carry[h] = right;
    }
    if (!is_in_part) continue;

    // Multiply and store.
    const auto add = [&](int i) {
      sums[K] += g[i];
#pragma unroll
      for (int k = 0; k < K; ++k) sums[k] = multiply_add(g[i], x[i + k], sums[k]);
    };
    if (now.whole) {
#pragma unroll
      for (int i = 0; i < N; ++i) add(i);
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if (is_output(begin + i)) add(i);  // 0 times an infinite value is NaN
      }
    }
    C result[N] = {};
#pragma unroll
    for (int i = 0; i < N; ++i) {
#pragma unroll
      for (int k = 0; k < K; ++k) result[i] = multiply_add(taps[k], g[i + H - k], result[i]);
    }
    if (args.to == nullptr) continue;
    if (now.whole) {
#pragma unroll
      for (int i = 0; i < N; i += V) store_whole(to + begin + i, narrow<T, V>(result + i));
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const auto at = static_cast<uint32_t>(begin + i);
        if (at < static_cast<uint32_t>(from_size)) to[begin + i] = from_compute<T>(result[i]);
      }
    }
  }

  // Reduce.
  if (args.sums == nullptr) return;
#pragma unroll
  for (int k = 0; k <= K; ++k) {
    for (int mask = width / 2; mask > 0; mask /= 2) sums[k] += shuffle_xor(sums[k], mask);
  }
  if (!exists || lane != 0) return;
  const uint32_t split = image * args.parts.divisor + static_cast<uint32_t>(part);
  C* const split_sums = static_cast<C*>(args.sums) + int64_t{split} * args.channels * (K + 1);
#pragma unroll
  for (int k = 0; k < K; ++k) split_sums[int64_t{channel} * K + k] = sums[k];
  split_sums[int64_t{args.channels} * K + channel] = sums[K];
}

}  // namespace gpuopt::conv1d
