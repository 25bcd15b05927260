// f32 of stride 1: a warp computes one tile after another from shared memory.
#pragma once

#include <type_traits>

#include "conv1d/device/chunk.cuh"
#include "conv1d/forward/sliding.h"

namespace gpuopt::conv1d {

// A thread computes two vectors of a tile's outputs. The second is kSecondVec vectors behind the
// first.
template <typename T>
constexpr int kTileOutputs = 64 * kVecSize<T>;
constexpr int kSecondVec = 32;

// Calls visit with `ahead` as a constant, so that register indices are constants.
template <typename T, typename Visit>
__device__ __forceinline__ void with_ahead(int32_t ahead, const Visit& visit) {
  static_assert(kVecSize<T> == 4);
  if (ahead < 2) {
    ahead == 0 ? visit(std::integral_constant<int, 0>()) : visit(std::integral_constant<int, 1>());
  } else {
    ahead == 2 ? visit(std::integral_constant<int, 2>()) : visit(std::integral_constant<int, 3>());
  }
}

// The inputs under a thread's two vectors of outputs: for each a ring of three input vectors. A
// read overwrites the oldest vector, so nothing moves between registers:
//
//   v0 v1 v2   taps 0 to N - 1
//   v3 v1 v2   taps N to 2 N - 1
//   v3 v4 v2   taps 2 N to 3 N - 1
//
// kAhead is Chunk::ahead: the number of values in the first vector before the first tap's position.
template <typename T, int kAhead>
struct Windows {
  using C = compute_t<T>;
  static constexpr int N = kVecSize<T>;
  C values[2][3 * N];

  // Reads vector i of the row into the ring.
  template <int i>
  __device__ __forceinline__ void read(const uint4* row) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto vec = vec_of<T>(load_shared_whole(row + half * kSecondVec + i));
#pragma unroll
      for (int j = 0; j < N; ++j) values[half][i % 3 * N + j] = vec.values[j];
    }
  }

  // Adds N taps or, if not kAll, the `count` taps that are left. kFirst is the oldest vector of the
  // ring.
  template <int kFirst, bool kAll>
  __device__ __forceinline__ void add(C (&sums)[2][N], const C* taps, int32_t count) const {
    const auto tap_vec = load_vec<C, N>(taps);
#pragma unroll
    for (int t = 0; t < N; ++t) {
      // Missing taps are skipped: 0 times an infinite value is NaN.
      if (kAll || t == 0 || t < count) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
          for (int i = 0; i < N; ++i) {
            const int position = (kFirst * N + kAhead + t + i) % (3 * N);
            sums[half][i] = multiply_add(tap_vec.values[t], values[half][position], sums[half][i]);
          }
        }
      }
    }
  }
};

// Adds one input row of the chunk to a thread's outputs.
template <int kAhead, typename T, int N>
__device__ __forceinline__ void slide_over(compute_t<T> (&sums)[2][N], const uint4* row,
                                           const compute_t<T>* taps, int32_t count) {
  Windows<T, kAhead> windows;
  windows.template read<0>(row);
  windows.template read<1>(row);
  windows.template read<2>(row);
  while (count > 3 * N) {
    windows.template add<0, true>(sums, taps, count);
    windows.template read<3>(row);
    windows.template add<1, true>(sums, taps + N, count);
    windows.template read<4>(row);
    windows.template add<2, true>(sums, taps + 2 * N, count);
    windows.template read<5>(row);
    row += 3;
    taps += 3 * N;
    count -= 3 * N;
  }
  if (count <= N) {
    windows.template add<0, false>(sums, taps, count);
    return;
  }
  windows.template add<0, true>(sums, taps, count);
  windows.template read<3>(row);
  if (count <= 2 * N) {
    windows.template add<1, false>(sums, taps + N, count - N);
    return;
  }
  windows.template add<1, true>(sums, taps + N, count);
  windows.template read<4>(row);
  windows.template add<2, false>(sums, taps + 2 * N, count - 2 * N);
}

// slide_over() for dilated taps. Each tap loads another window, from byte `position` of the
// row on.
template <typename T, int P>
__device__ __forceinline__ void visit_taps(compute_t<T> (&sums)[P], const uint4* vecs,
                                           uint32_t position, uint32_t step,
                                           const compute_t<T>* taps, int32_t count) {
  constexpr int N = kVecSize<T>;
#pragma unroll 2
  for (int32_t k = 0; k < count; ++k) {
    uint4 raw[P / N + 1];
    read_vecs(raw, vecs + position / kVecBytes);
    compute_t<T> window[P];
    shift_in<T, P / N>(window, raw, position % kVecBytes);
#pragma unroll
    for (int i = 0; i < P; ++i) sums[i] = multiply_add(taps[k], window[i], sums[i]);
    position += step;
  }
}

template <typename T, bool kDilated>
__global__ void __launch_bounds__(kChunkThreads, 8)
    sliding_kernel(const __grid_constant__ ChunkArgs args) {
  using C = compute_t<T>;
  constexpr int N = kVecSize<T>, kTile = kTileOutputs<T>;
  extern __shared__ uint4 shared[];
  __shared__ WarpCopies<1>::Barriers barriers[kChunkThreads / 32];
  __shared__ C biases[kChunkThreads / 32];
  launch_dependents();
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t warp = blockIdx.x * (kChunkThreads / 32) + threadIdx.x / 32;
  const uint32_t tap_vecs = args.taps_pitch / (kVecBytes / sizeof(C));
  const uint32_t first_vec = threadIdx.x / 32 * (args.warp_vecs + tap_vecs);
  const uint32_t first_taps = first_vec + args.warp_vecs;
  WarpCopies<1> copies(barriers[threadIdx.x / 32]);
  grid_dependency_wait();
  if (warp >= args.warps) return;

  // Load.
  const Chunk<T, kTile> chunk(args, warp);
  chunk.copy(args, copies, shared + first_vec, 0, static_cast<int32_t>(args.warp_vecs));
  C* const taps = reinterpret_cast<C*>(shared + first_taps);
#pragma unroll 4
  for (auto k = static_cast<int32_t>(lane); k < args.taps; k += 32) {
    taps[k] = to_compute(chunk.weight[k * args.weight_tap]);
  }
  if (args.bias != nullptr && lane == 0) {
    biases[threadIdx.x / 32] =
        to_compute(static_cast<const T*>(args.bias)[chunk.channel * args.bias_stride]);
  }
  copies.wait();
  __syncwarp();

  const int32_t ahead = chunk.ahead(args, 0);
  int32_t begin = chunk.begin + static_cast<int32_t>(lane) * N;
#pragma unroll 1
  for (uint32_t tile = 0; tile < args.warp_tiles; ++tile) {
    // Multiply.
    C sums[2][N] = {};
    const uint4* const row = shared + (first_vec + tile * (2 * kSecondVec) + lane);
    if constexpr (kDilated) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        visit_taps<T>(sums[half], row + half * kSecondVec, static_cast<uint32_t>(ahead) * sizeof(T),
                      args.dilation.divisor * sizeof(T), taps, args.taps);
      }
    } else {
      with_ahead<T>(ahead, [&](auto constant) {
        slide_over<decltype(constant)::value, T>(sums, row, taps, args.taps);
      });
    }
    // Store.
    if (args.bias != nullptr) {
      const C bias = biases[threadIdx.x / 32];
#pragma unroll
      for (int i = 0; i < 2 * N; ++i) sums[i / N][i % N] += bias;
    }
    if (args.activation != Activation::kNone) {
      activate<T>(sums[0], args.activation);
      activate<T>(sums[1], args.activation);
    }
    const int32_t tile_begin = begin - static_cast<int32_t>(lane) * N;
    if (tile_begin >= 0 && tile_begin <= args.to_size - kTile) {
      store_whole(chunk.to + begin, narrow<T, N>(sums[0]));
      store_whole(chunk.to + begin + kSecondVec * N, narrow<T, N>(sums[1]));
    } else {
      store_values<T, N>(chunk.to, begin, args.to_size, sums[0]);
      store_values<T, N>(chunk.to, begin + kSecondVec * N, args.to_size, sums[1]);
    }
    begin += kTile;
  }
}

template <Single T>
auto kernel_of(const SlidingPlan& plan) {
  return plan.dilated ? sliding_kernel<T, true> : sliding_kernel<T, false>;
}

}  // namespace gpuopt::conv1d
