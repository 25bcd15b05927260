// Convolutions of step 1 along contiguous rows, in chunks: a warp makes tile after tile of its outputs from shared memory.
#pragma once

#include <type_traits>

#include "common/warp.cuh"
#include "conv1d/conv1d_chunk.cuh"
#include "conv1d/conv1d_slide.cuh"

namespace gpuopt::conv1d {

// A lane has two packs of a tile's outputs. Where the taps slide these are neighbours, for more multiply-adds to each access
// to shared memory; else the warp's lanes have all the first ones side by side, then all the second ones.
template <typename T>
constexpr int kTileOutputs = 64 * kPackSize<T>;

// The packs of an input row in shared memory, with those of odd number `half` packs behind those of even number: lanes two
// packs apart read neighbouring ones, without bank conflicts. `packs` is the first, an even one.
struct SplitPacks {
  const uint4* packs;
  uint32_t half;
  __device__ __forceinline__ const uint4* at(int i) const { return packs + (i % 2) * half + i / 2; }
};

template <typename T, int kSize>
__device__ __forceinline__ void read_values(compute_t<T> (&values)[kSize], int i,
                                            const uint4* pack) {
  const auto own = pack_of<T>(load_shared_whole(pack));
#pragma unroll
  for (int j = 0; j < kPackSize<T>; ++j) values[i * kPackSize<T> + j] = own.values[j];
}

// The products of a lane's neighbouring outputs with one row of the chunk, of which the first tap's place is kAhead values
// behind the first pack: known to the compiler, so that nothing is moved in registers.
template <int kAhead, typename T, int P>
__device__ __forceinline__ void slide_over(compute_t<T> (&sums)[1][P], SplitPacks packs,
                                           const compute_t<T>* taps, int32_t count) {
  using C = compute_t<T>;
  constexpr int N = kPackSize<T>, K = kRowTaps<T>, kFirst = (P + K) / N + 1, kNext = K / N;
  constexpr int kStep = kPackBytes / static_cast<int>(sizeof(C));
  C window[kFirst * N];
#pragma unroll
  for (int i = 0; i < kFirst; ++i) read_values<T>(window, i, packs.at(i));
#pragma unroll 2
  for (; count > K; count -= K) {
    C own[K];
#pragma unroll
    for (int t = 0; t < K; t += kStep) {
      const auto pack = load_pack<C, kStep>(taps + t);
#pragma unroll
      for (int i = 0; i < kStep; ++i) own[t + i] = pack.values[i];
    }
#pragma unroll
    for (int t = 0; t < K; ++t) {
#pragma unroll
      for (int i = 0; i < P; ++i) {
        sums[0][i] = multiply_add(own[t], window[kAhead + t + i], sums[0][i]);
      }
    }
    taps += K;
    packs.packs += kNext / 2;
#pragma unroll
    for (int i = 0; i < (kFirst - kNext) * N; ++i) window[i] = window[i + K];
#pragma unroll
    for (int i = kFirst - kNext; i < kFirst; ++i) read_values<T>(window, i, packs.at(i));
  }
  add_products<K, kAhead>(sums, window, taps, 0, count);
}

// The same of one step of taps, of two packs of outputs, the second `second` packs behind the first.
template <int kAhead, typename T, int N>
__device__ __forceinline__ void step_over(compute_t<T> (&sums)[2][N], const uint4* packs,
                                          int second, const compute_t<T>* taps, int32_t count) {
  using C = compute_t<T>;
  constexpr int K = kRowTaps<T>, kPacks = K / N + 2, kStep = kPackBytes / static_cast<int>(sizeof(C));
  C window[2][kPacks * N];
  // Of a half as many taps a pack less is read.
  const bool few = count <= K - N;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (i < kPacks - 1 || !few) read_values<T>(window[half], i, packs + half * second + i);
    }
  }
#pragma unroll
  for (int first = 0; first < K; first += kStep) {
    if (first < count) {
      const auto own = load_pack<C, kStep>(taps + first);
      const auto add = [&](int t) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
          for (int i = 0; i < N; ++i) {
            sums[half][i] =
                multiply_add(own.values[t], window[half][kAhead + first + t + i], sums[half][i]);
          }
        }
      };
      add(0);
#pragma unroll
      for (int t = 1; t < kStep; ++t) {
        if (first + t < count) add(t);
      }
    }
  }
}

// The outputs of a lane that are neighbours, two packs, stored by pairs of lanes so that each store fills whole sectors of
// 32 bytes. All lanes of the warp take part.
template <typename T, int N>
__device__ __forceinline__ void exchange(compute_t<T> (&sums)[2][N],
                                         const compute_t<T> (&values)[2 * N]) {
  using C = compute_t<T>;
  const bool odd = threadIdx.x & 1;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const C low = values[i], high = values[N + i];
    const C kept = odd ? high : C(low), given = odd ? low : C(high);
    const C got = shuffle_xor(given, 1);
    sums[0][i] = odd ? got : C(kept);
    sums[1][i] = odd ? kept : C(got);
  }
}

template <typename T, Taps kTaps>
__global__ void __launch_bounds__(kChunkThreads, sizeof(T) == 8 ? 6 : 8)
    tiles_kernel(const __grid_constant__ ChunkArgs args) {
  using C = compute_t<T>;
  constexpr int N = kPackSize<T>, kTile = kTileOutputs<T>;
  extern __shared__ uint4 shared[];
  __shared__ uint64_t barriers[kChunkThreads / 32];
  let_next_grid_start();
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t warp = blockIdx.x * (kChunkThreads / 32) + threadIdx.x / 32;
  uint4* const packs = shared + threadIdx.x / 32 * args.in_channels *
                                    (args.warp_packs + args.taps_pitch / (kPackBytes / sizeof(C)));
  C* const taps = reinterpret_cast<C*>(packs + args.in_channels * args.warp_packs);
  WarpCopies copies(&barriers[threadIdx.x / 32]);
  wait_for_grid_before();
  if (warp >= args.warps) return;

  const Chunk<T, kTile> chunk(args, warp);
  const auto warp_packs = static_cast<int32_t>(args.warp_packs);
#pragma unroll 1
  for (uint32_t c = 0; c < args.in_channels; ++c) {
    if constexpr (kTaps == Taps::kSliding) {
      chunk.copy_split(args, packs + c * args.warp_packs, c, warp_packs);
    } else {
      chunk.copy(args, copies, packs + c * args.warp_packs, c, warp_packs);
    }
#pragma unroll 1
    for (auto k = static_cast<int32_t>(lane); k < args.taps; k += 32) {
      taps[c * args.taps_pitch + k] =
          to_compute(chunk.weight[c * args.weight_in + k * args.weight_tap]);
    }
  }
  C bias = 0;
  if (args.bias != nullptr) {
    bias = to_compute(static_cast<const T*>(args.bias)[chunk.channel * args.bias_stride]);
  }
  if constexpr (kTaps == Taps::kSliding) {
    wait_for_copies();
  } else {
    copies.wait();
  }
  __syncwarp();

  // Of the lane's first pack of outputs, and from it to the second one.
  const uint32_t own = kTaps == Taps::kSliding ? lane + lane / 2 * 2 : lane;
  constexpr int kSecond = kTaps == Taps::kSliding ? 2 : 32;
  int32_t begin = chunk.begin + static_cast<int32_t>(own) * N;
#pragma unroll 1
  for (uint32_t tile = 0; tile < args.warp_tiles; ++tile) {
    C sums[2][N] = {};
    C neighbours[1][2 * N] = {};
    for (uint32_t c = 0; c < args.in_channels; ++c) {
      const int32_t ahead = chunk.ahead(args, c);
      const uint4* const row = packs + c * args.warp_packs;
      const C* const own_taps = taps + c * args.taps_pitch;
      const auto add = [&](auto constant) {
        constexpr int kAhead = decltype(constant)::value;
        if constexpr (kTaps == Taps::kSliding) {
          slide_over<kAhead, T>(neighbours, SplitPacks{row + tile * 32 + lane, args.warp_packs / 2},
                                own_taps, args.taps);
        } else {
          step_over<kAhead, T>(sums, row + tile * 64 + lane, 32, own_taps, args.taps);
        }
      };
      if constexpr (kTaps == Taps::kDilated) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          C part[1][N];
#pragma unroll
          for (int i = 0; i < N; ++i) part[0][i] = sums[half][i];
          visit_taps<T>(part, row + tile * 64 + half * 32 + lane,
                        static_cast<uint32_t>(ahead) * sizeof(T),
                        args.dilation.divisor * sizeof(T), own_taps, 0, args.taps);
#pragma unroll
          for (int i = 0; i < N; ++i) sums[half][i] = part[0][i];
        }
      } else if constexpr (N == 2) {
        ahead == 0 ? add(std::integral_constant<int, 0>()) : add(std::integral_constant<int, 1>());
      } else if (ahead < 2) {
        ahead == 0 ? add(std::integral_constant<int, 0>()) : add(std::integral_constant<int, 1>());
      } else {
        ahead == 2 ? add(std::integral_constant<int, 2>()) : add(std::integral_constant<int, 3>());
      }
    }
    if constexpr (kTaps == Taps::kSliding) exchange<T>(sums, neighbours[0]);
    if (args.bias != nullptr) {
#pragma unroll
      for (int i = 0; i < 2 * N; ++i) sums[i / N][i % N] += bias;
    }
    if (args.activation != Activation::kNone) {
      activate(sums[0], args.activation);
      activate(sums[1], args.activation);
    }
    if (chunk.holds(args.to_size, static_cast<int>(tile))) {
      store_whole(chunk.to + begin, narrow<T, N>(sums[0]));
      store_whole(chunk.to + begin + kSecond * N, narrow<T, N>(sums[1]));
    } else {
      store_values<T, N>(chunk.to, begin, args.to_size, sums[0]);
      store_values<T, N>(chunk.to, begin + kSecond * N, args.to_size, sums[1]);
    }
    begin += kTile;
  }
}

}  // namespace gpuopt::conv1d
