// Input gradients of strides other than 1 along contiguous rows, in chunks. Input position i meets
// tap k at gradient position (i + padding - k * dilation) / stride, if that is an integer. The
// first tap_cycle taps meet different positions. Tap k + tap_cycle meets the positions of tap k:
//
//   stride 3, dilation 1, padding 0, 6 taps
//   position of the input    0  1  2  3  4  5  6  7  8
//   taps that meet it        0  1  2  0  1  2  0  1  2
//                                     3  4  5  3  4  5
//
// A thread has one of the first taps and loops over the tap's positions. Results stay in shared
// memory until the warp stores them as vectors. Positions that meet no tap are the bias, or 0.
#pragma once

#include "conv1d/device/chunk.cuh"
#include "conv1d/input_gradient/strided.h"

namespace gpuopt::conv1d {

// Stores the chunk from shared memory: whole vectors, then values at the row's ends.
template <typename T, int kTile>
__device__ __forceinline__ void write_chunk(const Chunk<T, kTile>& chunk, const uint4* made,
                                            int32_t vecs, int32_t size) {
  constexpr int N = kVecSize<T>;
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  const auto whole = Rows<T>::whole_vecs(chunk.begin, size, vecs);
#pragma unroll 2
  for (int32_t q = whole.low + lane; q < whole.high; q += 32) {
    store_whole(chunk.to + chunk.begin + q * N, vec_of<T>(made[q]));
  }
  // The vectors before and behind the whole ones.
  const int32_t q = lane < 16 ? whole.low - 1 : whole.high, i = lane % 16;
  const int32_t position = chunk.begin + q * N + i;
  if (i < N && static_cast<uint32_t>(q) < static_cast<uint32_t>(vecs) &&
      static_cast<uint32_t>(position) < static_cast<uint32_t>(size)) {
    chunk.to[position] = reinterpret_cast<const T*>(made)[q * N + i];
  }
}

// A thread's position in the chunk (`position`), which advances by `apart`, and in the gradient
// (`under`), which advances by `rows`.
struct GatherLane {
  int32_t under, position, positions, rows, apart;
};

// Computes positions that meet at most one tap of one channel. `grads` is the thread's first
// gradient.
template <typename T>
__device__ __forceinline__ void make_products(T* made, const T* grads, compute_t<T> weight,
                                              compute_t<T> bias, GatherLane lane,
                                              const ChunkArgs& args) {
  using C = compute_t<T>;
  T* to = made + lane.position;
#pragma unroll 1
  for (; lane.position < lane.positions; lane.position += kStridedGradientPositions * lane.apart) {
    C products[kStridedGradientPositions];
#pragma unroll
    for (int j = 0; j < kStridedGradientPositions; ++j) {
      const auto under = static_cast<uint32_t>(lane.under + j * lane.rows);
      const bool valid = lane.position + j * lane.apart < lane.positions &&
                         under < static_cast<uint32_t>(args.from_size);
      products[j] = valid ? weight * to_compute(grads[j * lane.rows]) : C(0);
    }
    if (args.bias != nullptr) {
#pragma unroll
      for (int j = 0; j < kStridedGradientPositions; ++j) products[j] += bias;
    }
#pragma unroll
    for (int j = 0; j < kStridedGradientPositions; ++j) {
      if (lane.position + j * lane.apart < lane.positions) {
        to[j * lane.apart] = from_compute<T>(products[j]);
      }
    }
    lane.under += kStridedGradientPositions * lane.rows;
    grads += kStridedGradientPositions * lane.rows;
    to += kStridedGradientPositions * lane.apart;
  }
}

// Computes positions as sums over all channels and every tap_cycle-th tap from `tap` on.
template <typename T, int kTile>
__device__ __forceinline__ void make_sums(T* made, const Chunk<T, kTile>& chunk, const uint4* vecs,
                                          const compute_t<T>* taps, compute_t<T> bias, int32_t tap,
                                          GatherLane lane, const StridedGradientArgs& args) {
  using C = compute_t<T>;
  constexpr int32_t kNowhere = INT32_MIN / 2;
#pragma unroll 1
  for (; lane.position < lane.positions; lane.position += kStridedGradientPositions * lane.apart) {
    C sums[kStridedGradientPositions] = {};
#pragma unroll 1
    for (uint32_t c = 0; c < args.in_channels; ++c) {
      const T* const grads = reinterpret_cast<const T*>(vecs + c * args.warp_vecs);
      const C* const channel_taps = taps + c * args.taps_pitch;
      const int32_t ahead = chunk.ahead(args, c) - chunk.first;
      int32_t at[kStridedGradientPositions];
#pragma unroll
      for (int j = 0; j < kStridedGradientPositions; ++j) {
        at[j] =
            lane.position + j * lane.apart < lane.positions ? lane.under + j * lane.rows : kNowhere;
      }
#pragma unroll 1
      for (int32_t k = tap; k < args.taps; k += args.tap_cycle) {
        const C weight = channel_taps[k];
#pragma unroll
        for (int j = 0; j < kStridedGradientPositions; ++j) {
          // Missing gradients are skipped: 0 times an infinite tap is NaN.
          if (static_cast<uint32_t>(at[j]) < static_cast<uint32_t>(args.from_size)) {
            sums[j] = multiply_add(weight, to_compute(grads[at[j] + ahead]), sums[j]);
          }
          at[j] -= args.position_step;
        }
      }
    }
#pragma unroll
    for (int j = 0; j < kStridedGradientPositions; ++j) {
      if (lane.position + j * lane.apart < lane.positions) {
        made[lane.position + j * lane.apart] = from_compute<T>(sums[j] + bias);
      }
    }
    lane.under += kStridedGradientPositions * lane.rows;
  }
}

// kOneProduct means that each position meets at most one tap of one channel.
template <typename T, bool kOneProduct>
__global__ void __launch_bounds__(kChunkThreads, 8)
    strided_gradient_kernel(const __grid_constant__ StridedGradientArgs args) {
  using C = compute_t<T>;
  constexpr int N = kVecSize<T>, kTile = 32 * N;
  extern __shared__ uint4 shared[];
  __shared__ WarpCopies<1>::Barriers barriers[kChunkThreads / 32];
  launch_dependents();
  const uint32_t in_channels = kOneProduct ? 1 : args.in_channels;
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  const uint32_t warp = blockIdx.x * (kChunkThreads / 32) + threadIdx.x / 32;
  const uint32_t tap_vecs = args.taps_pitch / (kVecBytes / static_cast<uint32_t>(sizeof(C)));
  const uint32_t made_vecs = args.warp_tiles * 32;
  uint4* const made =
      shared + threadIdx.x / 32 * (made_vecs + in_channels * (args.warp_vecs + tap_vecs));
  uint4* const vecs = made + made_vecs;
  C* const taps = reinterpret_cast<C*>(vecs + in_channels * args.warp_vecs);
  WarpCopies<1> copies(barriers[threadIdx.x / 32]);
  grid_dependency_wait();
  if (warp >= args.warps) return;

  // Load gradients and taps.
  const auto dilation = static_cast<int32_t>(args.dilation.divisor);
  const Chunk<T, kTile> chunk(args, warp, [&](int32_t begin) {
    return args.steps_to(begin + args.padding - (args.taps - 1) * dilation);
  });
#pragma unroll 1
  for (uint32_t c = 0; c < in_channels; ++c) {
    chunk.copy(args, copies, vecs + c * args.warp_vecs, c, static_cast<int32_t>(args.warp_vecs));
#pragma unroll 1
    for (int32_t k = lane; k < args.taps; k += 32) {
      taps[c * args.taps_pitch + k] =
          to_compute(chunk.weight[c * args.weight_in + k * args.weight_tap]);
    }
  }
  const int32_t positions =
      max(min(static_cast<int32_t>(args.warp_tiles * kTile), args.to_size - chunk.begin), 0);
  const int32_t vecs_made = (positions + N - 1) / N;
  const auto step = static_cast<int32_t>(args.step_div.divisor);
  const C bias = load_bias<T>(args, chunk.channel);
  if (args.first_taps < step) {
    Vec<T, N> empty;
#pragma unroll
    for (int i = 0; i < N; ++i) empty.values[i] = from_compute<T>(bias);
#pragma unroll 2
    for (int32_t q = lane; q < vecs_made; q += 32) {
      store_vec(reinterpret_cast<T*>(made + q), empty);
    }
  }
  copies.wait();
  __syncwarp();

  // Multiply.
  auto row = static_cast<uint32_t>(lane);
  auto tap = static_cast<int32_t>(args.width.divmod(row));
  if (static_cast<int32_t>(row) >= args.rows) tap = args.first_taps;
#pragma unroll 1
  for (; tap < args.first_taps; tap += static_cast<int32_t>(args.width.divisor)) {
    const int32_t reach = chunk.begin + args.padding - tap * dilation;
    const int32_t under = args.steps_to(reach) + static_cast<int32_t>(row);
    const GatherLane gather{under, under * step - reach, positions, args.rows, args.rows * step};
    T* const to = reinterpret_cast<T*>(made);
    if constexpr (kOneProduct) {
      const T* const grads = reinterpret_cast<const T*>(vecs) + chunk.ahead(args, 0) - chunk.first;
      make_products(to, grads + under, taps[tap], bias, gather, args);
    } else {
      make_sums(to, chunk, vecs, taps, bias, tap, gather, args);
    }
  }
  __syncwarp();
  // Store.
  write_chunk(chunk, made, vecs_made, args.to_size);
}

template <typename T>
auto kernel_of(const StridedGradientPlan& plan) {
  return plan.one_tap ? strided_gradient_kernel<T, true> : strided_gradient_kernel<T, false>;
}

}  // namespace gpuopt::conv1d
