// Depthwise Toeplitz products (README.md) of fp16 and bf16 with up to kDirectTaps taps. B stays in
// registers, and threads load their parts of A from memory, without shared memory. A warp has one
// or two tiles and loads all their inputs at once. Other warps hide the latency.
#pragma once

#include "common/recomputed.cuh"
#include "conv1d/device/chunk.cuh"
#include "conv1d/device/launch.cuh"
#include "conv1d/device/mma.cuh"
#include "conv1d/forward/direct.h"

namespace gpuopt::conv1d {

// A thread's words of B, in column lane / 4. Each word holds the taps of two consecutive rows. Row
// j and column n hold tap j - n - ahead. All threads of the warp take part.
template <typename T>
class TapWords {
 public:
  __device__ __forceinline__ TapWords(const T* weight, const ChunkArgs& args, int32_t ahead) {
    // Each thread of the warp holds a tap, or 0. At least ten threads hold 0, and rows before the
    // first tap read from them.
    const auto lane = static_cast<int32_t>(threadIdx.x % 32);
    const T tap = load_if(weight + lane * args.weight_tap, lane < args.taps);
    uint16_t bits;
    memcpy(&bits, &tap, sizeof(bits));
    bits_ = bits;
    first_ = -lane / 4 - ahead;
  }
  __device__ __forceinline__ uint32_t at(int32_t row) const {
    const uint32_t first = __shfl_sync(0xffffffffu, bits_, first_ + row);  // lanes count modulo 32
    const uint32_t second = __shfl_sync(0xffffffffu, bits_, first_ + row + 1);
    return __byte_perm(first, second, 0x5410);
  }
  // Tap k, for all threads.
  __device__ __forceinline__ compute_t<T> value(int32_t k) const {
    const auto bits = static_cast<uint16_t>(__shfl_sync(0xffffffffu, bits_, k));
    T tap;
    memcpy(&tap, &bits, sizeof(tap));
    return to_compute(tap);
  }

 private:
  uint32_t bits_;
  int32_t first_;
};

// A thread's part of A: four neighbouring inputs in each of kCount blocks that lie 64 values apart.
// A's columns and B's rows are permuted alike, so that these four are one load:
//
//   lane % 4          0                1                2                3
//   input         0  1  2  3 |   4  5  6  7 |   8  9 10 11 |  12 13 14 15
//   column of A   0  1  8  9 |   2  3 10 11 |   4  5 12 13 |   6  7 14 15
template <typename T>
struct BlockInputs {
  static constexpr int kCount = 2 * kMmaParts, kApart = kMmaOutputs / 2;
  uint64_t quads[kCount];  // little-endian: the first value is the lowest

  // Loads quads from `own` on, position `at` of a row of `size` values, with 0 outside the row.
  __device__ __forceinline__ void load(const T* own, int32_t at, int32_t size) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const bool inside = static_cast<uint32_t>(at + i * kApart) < static_cast<uint32_t>(size);
      quads[i] = load_word<uint64_t>(own + i * kApart, inside);
    }
  }

  // C += A B for part `m` of a tile.
  __device__ __forceinline__ void multiply_add(float (&sums)[4], int m,
                                               const uint32_t (&taps)[2]) const {
    const uint64_t upper = quads[2 * m], lower = quads[2 * m + 1];
    const uint32_t a[4] = {static_cast<uint32_t>(upper), static_cast<uint32_t>(lower),
                           static_cast<uint32_t>(upper >> 32), static_cast<uint32_t>(lower >> 32)};
    multiply_add_matrices<T>(sums, a, taps);
  }
};

// Blocks per SM, limited by registers.
constexpr int direct_blocks(int tiles, bool far) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 750
  return 768 / direct_threads(tiles);  // bf16 spills with 1024 threads
#else
  return tiles == 1 ? 6 : far ? 9 : 10;
#endif
}

// One mma covers kDirectNear taps and values ahead. kFar adds a second mma, 16 positions further
// on. With two tiles per warp, a row's last warp computes up to kDirectRest further outputs, one
// per thread.
template <typename T, int kTiles, bool kFar>
__global__ void __launch_bounds__(direct_threads(kTiles), direct_blocks(kTiles, kFar))
    direct_kernel(const __grid_constant__ ChunkArgs args) {
  constexpr int kTile = kMmaParts * kMmaOutputs;
  launch_dependents();
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  const uint32_t warp = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  grid_dependency_wait();
  if (warp >= args.warps) return;

  // Load.
  const Chunk<T, kTile> chunk(args, warp);
  const auto ahead = static_cast<int32_t>(chunk.origin % kDirectQuad);
  const int32_t row = lane % 4 * kDirectQuad, at = chunk.first - ahead + lane / 4 * 8 + row;
  const T* const own = chunk.from + at;  // one address for all loads
  const TapWords<T> taps(chunk.weight, args, ahead);
  BlockInputs<T> near[kTiles], far[kTiles];
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    near[i].load(own + i * kTile, at + i * kTile, args.from_size);
    if (kFar) far[i].load(own + i * kTile + 16, at + i * kTile + 16, args.from_size);
  }
  const float bias = load_bias<T>(args, chunk.channel);
  const uint32_t first[2] = {taps.at(row), taps.at(row + 2)};
  uint32_t rest[2] = {};
  if (kFar) {
    rest[0] = taps.at(row + 16);
    rest[1] = taps.at(row + 18);
  }

  // Multiply and store.
  const auto sum_at = [&](int32_t position) {
    const Chunk<T, kTile> again(args, recomputed(warp));
    float sum = 0;
#pragma unroll 1
    for (int32_t k = 0; k < args.taps; ++k) {
      const int32_t from = position - args.padding + k;
      const bool inside = static_cast<uint32_t>(from) < static_cast<uint32_t>(args.from_size);
      sum = multiply_add(to_compute(load_if(again.from + from, inside)),
                         to_compute(again.weight[k * args.weight_tap]), sum);
    }
    return sum;
  };
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    float sums[kMmaParts][4] = {};
#pragma unroll
    for (int m = 0; m < kMmaParts; ++m) {
      near[i].multiply_add(sums[m], m, first);
      if (kFar) far[i].multiply_add(sums[m], m, rest);
    }
    store_tile(sums, args, chunk.to, chunk.begin + i * kTile + 2 * lane, bias, sum_at);
  }

  if constexpr (kTiles > 1) {
    // The rest of the row.
    const int32_t behind = chunk.begin + kTiles * kTile;
    if (!chunk.is_last || behind >= args.to_size) return;
    const Chunk<T, kTile> again(args, recomputed(warp));
    const int32_t position = behind + lane, under = position - args.padding;
    const TapWords<T> all_taps(again.weight, args, 0);
    float sum[1] = {};
#pragma unroll 4
    for (int32_t k = 0; k < args.taps; ++k) {
      const bool inside = static_cast<uint32_t>(under + k) < static_cast<uint32_t>(args.from_size);
      const T value = load_if(again.from + under + k, inside);
      sum[0] = multiply_add(to_compute(value), all_taps.value(k), sum[0]);
    }
    sum[0] += load_bias<T>(args, again.channel);
    activate<T>(sum, args.activation);
    if (position < args.to_size) again.to[position] = from_compute<T>(sum[0]);
  }
}

template <Half T>
auto kernel_of(const DirectPlan& plan) {
  if (plan.tiles == 1) return plan.far ? direct_kernel<T, 1, true> : direct_kernel<T, 1, false>;
  return plan.far ? direct_kernel<T, 2, true> : direct_kernel<T, 2, false>;
}

}  // namespace gpuopt::conv1d
