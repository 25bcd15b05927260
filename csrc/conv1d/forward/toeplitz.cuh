// Toeplitz products on tensor cores for fp16 and bf16 of stride 1 (sketch in README.md; PTX ISA,
// "Matrix Fragments for mma.m16n8k16"). A row of A holds the 16 inputs from the beginning of a
// block of 8 outputs on. Column n of B holds the taps from row n on.
#pragma once

#include "conv1d/device/chunk.cuh"
#include "conv1d/device/launch.cuh"
#include "conv1d/device/mma.cuh"
#include "conv1d/forward/toeplitz.h"

namespace gpuopt::conv1d {

// A thread's taps of B, column lane / 4: rows 2 * (lane % 4) + 0, 1, 8 and 9.
struct TapPairs {
  uint32_t words[2];
};

// A thread's part of 16 rows of B. `taps` points to its tap in the first row.
template <typename T>
__device__ __forceinline__ TapPairs pairs_at(const T* taps) {
  const auto pair_of = [](const T& first, const T& second) {
    const Vec<T, 2> pair{first, second};
    uint32_t word;
    memcpy(&word, &pair, sizeof(word));
    return word;
  };
  return {{pair_of(taps[0], taps[1]), pair_of(taps[8], taps[9])}};
}

// Zeros before the first tap in shared memory.
constexpr int32_t kTapsBefore = 14;

// Stores two outputs from `position` on, an even address. Outputs outside the row are skipped.
template <typename T>
__device__ __forceinline__ void store_pair(T* row, int32_t position, int32_t size,
                                           const Vec<T, 2>& pair) {
  if (position >= 0 && position + 1 < size) {
    store_vec(row + position, pair);
  } else if (position >= 0 && position < size) {
    row[position] = pair.values[0];
  } else if (position == -1) {
    row[0] = pair.values[1];
  }
}

// Adds the bias to a thread's sums, applies the activation and rounds to pairs. NaN may stem from a
// tap of 0 times an infinite input nearby: sum_at(i) computes such a sum again.
template <typename T, int kParts, typename Args, typename SumAt>
__device__ __forceinline__ void finish_sums(Vec<T, 2> (&rounded)[2 * kParts],
                                            float (&sums)[kParts][4], const Args& args, float bias,
                                            const SumAt& sum_at) {
  float total = 0;
#pragma unroll
  for (const auto& part : sums) total += (part[0] + part[1]) + (part[2] + part[3]);
  if (total != total) {
    // Not unrolled, because these rare instructions are fetched with the code around them.
#pragma unroll 1
    for (int i = 0; i < 4 * kParts; ++i) {
      const float alone = sum_at(i);
#pragma unroll
      for (int j = 0; j < 4 * kParts; ++j) {
        float& sum = sums[j / 4][j % 4];
        if (j == i && sum != sum) sum = alone;
      }
    }
  }
#pragma unroll
  for (auto& part : sums) finish<T>(part, args, bias);
#pragma unroll
  for (int i = 0; i < 2 * kParts; ++i) {
    rounded[i].values[0] = from_compute<T>(sums[i / 2][i % 2 * 2]);
    rounded[i].values[1] = from_compute<T>(sums[i / 2][i % 2 * 2 + 1]);
  }
}

// Stores a thread's outputs of a tile: pairs kMmaOutputs / 2 apart from `position` on.
// sum_at(position) computes an output without the matrices.
template <typename T, typename SumAt>
__device__ __forceinline__ void store_tile(float (&sums)[kMmaParts][4], const ChunkArgs& args,
                                           T* to, int32_t position, float bias,
                                           const SumAt& sum_at) {
  constexpr int kTile = kMmaParts * kMmaOutputs;
  Vec<T, 2> rounded[2 * kMmaParts];
  finish_sums(rounded, sums, args, bias,
              [&](int i) { return sum_at(position + i / 2 * (kMmaOutputs / 2) + i % 2); });
  const int32_t tile_begin = position - static_cast<int32_t>(2 * (threadIdx.x % 32));
  if (tile_begin >= 0 && tile_begin <= args.to_size - kTile) {
#pragma unroll
    for (int i = 0; i < 2 * kMmaParts; ++i) {
      store_whole(to + position + i * (kMmaOutputs / 2), rounded[i]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < 2 * kMmaParts; ++i) {
      store_pair(to, position + i * (kMmaOutputs / 2), args.to_size, rounded[i]);
    }
  }
}

// A thread's operands in one input channel.
template <typename T>
struct MmaRow {
  const uint4* vecs;  // matrix row `lane` of A
  const T* taps;      // the thread's part of B
  int32_t last;       // last row of B with taps
};

template <typename T>
__global__ void __launch_bounds__(kChunkThreads, 8)
    toeplitz_kernel(const __grid_constant__ ChunkArgs args) {
  constexpr int N = kVecSize<T>, kTile = kMmaParts * kMmaOutputs;
  extern __shared__ uint4 shared[];
  __shared__ WarpCopies<1>::Barriers barriers[kChunkThreads / 32];
  launch_dependents();
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t warp = blockIdx.x * (kChunkThreads / 32) + threadIdx.x / 32;
  uint4* const vecs =
      shared + threadIdx.x / 32 * args.in_channels * (args.warp_vecs + args.taps_pitch / N);
  uint4* const tap_vecs = vecs + args.in_channels * args.warp_vecs;
  T* const taps = reinterpret_cast<T*>(tap_vecs) + kTapsBefore;
  WarpCopies<1> copies(barriers[threadIdx.x / 32]);
  grid_dependency_wait();
  if (warp >= args.warps) return;

  // Load inputs and taps.
  const Chunk<T, kTile> chunk(args, warp);
  const auto span = static_cast<int32_t>((args.taps - 1) * args.dilation.divisor);
#pragma unroll 1
  for (uint32_t c = 0; c < args.in_channels; ++c) {
    const int32_t steps = (span + chunk.ahead(args, c) + 7) / 16;
    chunk.copy(args, copies, vecs + c * args.warp_vecs, c,
               static_cast<int32_t>(args.warp_tiles) * (kTile / N) + 2 * steps + 1);
  }
  // Zeros before, behind and (with dilation) between the taps.
#pragma unroll 1
  for (uint32_t i = lane; i < args.in_channels * (args.taps_pitch / N); i += 32) {
    tap_vecs[i] = uint4{};
  }
  __syncwarp();
#pragma unroll 1
  for (uint32_t c = 0; c < args.in_channels; ++c) {
#pragma unroll 4
    for (auto k = static_cast<int32_t>(lane); k < args.taps; k += 32) {
      taps[c * args.taps_pitch + k * args.dilation.divisor] =
          chunk.weight[c * args.weight_in + k * args.weight_tap];
    }
  }
  const float bias = load_bias<T>(args, chunk.channel);
  copies.wait();
  __syncwarp();

  const auto row_of = [&](uint32_t c) {
    const int32_t ahead = chunk.ahead(args, c);
    const uint4* const input = vecs + c * args.warp_vecs;
    // Row j and column n of B hold the tap that lies j - n - ahead positions behind the first.
    return MmaRow<T>{
        input + lane % 16 + lane / 16,
        taps + c * args.taps_pitch + 2 * (lane % 4) - static_cast<int32_t>(lane / 4) - ahead,
        span + ahead + 7};
  };
  MmaRow<T> row = row_of(0);
  const TapPairs first = pairs_at(row.taps);
  int32_t position = chunk.begin + static_cast<int32_t>(2 * lane);
#pragma unroll 1
  for (uint32_t tile = 0; tile < args.warp_tiles; ++tile) {
    // Multiply.
    float sums[kMmaParts][4] = {};
    TapPairs pairs = first;
#pragma unroll 1
    for (uint32_t c = 0;;) {
#pragma unroll 1
      for (int32_t step = 0;;) {
        const uint4* const a_vecs = row.vecs + (tile * kTile + step) / N;
        uint32_t a[kMmaParts][4];
        load_fragment(a[0], a_vecs);
        load_fragment<kMmaOutputs / N>(a[1], a_vecs);
        multiply_add_matrices<T>(sums[0], a[0], pairs.words);
        multiply_add_matrices<T>(sums[1], a[1], pairs.words);
        step += 16;
        if (step > row.last) break;
        pairs = pairs_at(row.taps + step);
      }
      if (args.in_channels == 1) break;
      const bool last = ++c == args.in_channels;
      row = row_of(last ? 0 : c);
      if (last) break;
      pairs = pairs_at(row.taps);
    }

    // Store.
    store_tile(sums, args, chunk.to, position, bias, [&](int32_t output) {
      float sum = 0;
      for (uint32_t c = 0; c < args.in_channels; ++c) {
        const T* const input = reinterpret_cast<const T*>(vecs + c * args.warp_vecs) +
                               chunk.ahead(args, c) + (output - chunk.begin);
        const T* const channel_taps = taps + c * args.taps_pitch;
#pragma unroll 1
        for (int32_t k = 0; k <= span; k += args.dilation.divisor) {
          sum = multiply_add(to_compute(input[k]), to_compute(channel_taps[k]), sum);
        }
      }
      return sum;
    });
    position += kTile;
  }
}

template <Half T>
auto kernel_of(const ToeplitzPlan&) {
  return toeplitz_kernel<T>;
}

}  // namespace gpuopt::conv1d
