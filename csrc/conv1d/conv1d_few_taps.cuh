// Convolutions of the half types of one input channel a group and few taps, of step 1 along contiguous rows, on tensor cores: as
// mma_kernel, with B in registers. It is one product of 16 places, and where these don't reach one of 8 more.
#pragma once

#include "conv1d/conv1d_mma.cuh"

namespace gpuopt::conv1d {

// Taps side by side, up to kFewTaps.
template <typename T>
__global__ void __launch_bounds__(kChunkThreads, 8)
    few_taps_kernel(const __grid_constant__ ChunkArgs args) {
  constexpr int N = kPackSize<T>, kTile = kMmaParts * kMmaOutputs;
  extern __shared__ uint4 shared[];
  __shared__ WarpCopies<1>::Barriers barriers[kChunkThreads / 32];
  let_next_grid_start();
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t warp = blockIdx.x * (kChunkThreads / 32) + threadIdx.x / 32;
  uint4* const packs = shared + threadIdx.x / 32 * args.warp_packs;
  WarpCopies<1> copies(barriers[threadIdx.x / 32]);
  wait_for_grid_before();
  if (warp >= args.warps) return;

  const Chunk<T, kTile> chunk(args, warp);
  chunk.copy(args, copies, packs, 0, static_cast<int32_t>(args.warp_packs));
  const int32_t ahead = chunk.ahead(args, 0);
  // The tap of row j and column n of B lies j - n - ahead places behind the first.
  const auto tap_at = [&](int32_t j) {
    const int32_t k = j - static_cast<int32_t>(lane / 4) - ahead;
    const bool valid = static_cast<uint32_t>(k) < static_cast<uint32_t>(args.taps);
    return load_if(chunk.weight + int64_t{k} * static_cast<int32_t>(args.weight_tap), valid);
  };
  uint32_t b[3];
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    const auto j = static_cast<int32_t>(2 * (lane % 4)) + 8 * i;
    const Pack<T, 2> pair{tap_at(j), tap_at(j + 1)};
    memcpy(&b[i], &pair, sizeof(pair));
  }
  float bias = 0;
  if (args.bias != nullptr) {
    bias = to_compute(static_cast<const T*>(args.bias)[chunk.channel * args.bias_stride]);
  }
  copies.wait();
  __syncwarp();

  const auto sum_at = [&](int32_t offset) {
    float sum = 0;
#pragma unroll 1
    for (int32_t k = 0; k < args.taps; ++k) {
      sum = multiply_add(to_compute(reinterpret_cast<const T*>(packs)[ahead + offset + k]),
                         to_compute(chunk.weight[k * args.weight_tap]), sum);
    }
    return sum;
  };
  const bool is_far = args.taps + ahead > 16 - 7;
  const uint4* near = packs + lane % 16 + lane / 16;
  const uint4* far = packs + lane + 2;
  int32_t place = chunk.begin + static_cast<int32_t>(2 * lane);
#pragma unroll 1
  for (uint32_t tile = 0; tile < args.warp_tiles; ++tile) {
    float sums[kMmaParts][4] = {};
    uint32_t a[kMmaParts][4];
    load_matrices<0>(a[0], near);
    load_matrices<kMmaOutputs / N>(a[1], near);
    const uint32_t first[2] = {b[0], b[1]};
    multiply_add_matrices<T>(sums[0], a[0], first);
    multiply_add_matrices<T>(sums[1], a[1], first);
    if (is_far) {
      uint32_t more[4];
      load_matrices<0>(more, far);
      const uint32_t upper[2] = {more[0], more[1]}, lower[2] = {more[2], more[3]};
      multiply_add_matrices<T>(sums[0], upper, b[2]);
      multiply_add_matrices<T>(sums[1], lower, b[2]);
    }
    store_tile(sums, args, chunk, place, bias, sum_at);
    near += kTile / N;
    far += kTile / N;
    place += kTile;
  }
}

}  // namespace gpuopt::conv1d
