// Convolutions of the half types of one input channel a group and up to kDirectTaps taps, of step 1
// along contiguous rows of whole quads, on tensor cores: as toeplitz_kernel, with B in registers
// and parts of A that lanes load from memory. A warp has a tile or two, all of whose loads are
// under way at once, and no more: little is issued before them, and other warps' loads fill the
// time until they are here.
#pragma once

#include "conv1d/device/chunk.cuh"
#include "conv1d/forward/direct.h"

namespace gpuopt::conv1d {

// A lane's words of B: each the taps of two rows, one below the other, of column lane / 4. The tap
// of row j and column n lies j - n - ahead places behind the first. All lanes of the warp take
// part.
template <typename T>
class TapWords {
 public:
  __device__ __forceinline__ TapWords(const T* weight, const ChunkArgs& args, int32_t ahead) {
    // Each lane has a tap, and those behind the last have 0: at least ten, which rows before the
    // first tap meet.
    const auto lane = static_cast<int32_t>(threadIdx.x % 32);
    const T tap = load_if(weight + lane * args.weight_tap, lane < args.taps);
    uint16_t bits;
    memcpy(&bits, &tap, sizeof(bits));
    bits_ = bits;
    first_ = -lane / 4 - ahead;
  }
  __device__ __forceinline__ uint32_t at(int32_t row) const {
    const uint32_t first = __shfl_sync(0xffffffffu, bits_, first_ + row);  // of the lane modulo 32
    const uint32_t second = __shfl_sync(0xffffffffu, bits_, first_ + row + 1);
    return __byte_perm(first, second, 0x5410);
  }
  // One tap, for all lanes.
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

// What a lane has of A: of each of kCount blocks, 64 values apart, its 4 of 16 neighbouring inputs.
// (A's columns and B's rows may be in any order, as long as it is the same: columns 2 t, 2 t + 1, 2
// t + 8 and 2 t + 9, which are one lane's, are neighbours here.)
template <typename T>
struct BlockInputs {
  static constexpr int kCount = 2 * kMmaParts, kApart = kMmaOutputs / 2;
  uint64_t quads[kCount];  // little-endian: the first value is the lowest

  // From `own` on, place `at` of a row of `size` values, with 0 for what lies outside: whole quads.
  __device__ __forceinline__ void load(const T* own, int32_t at, int32_t size) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const bool inside = static_cast<uint32_t>(at + i * kApart) < static_cast<uint32_t>(size);
      quads[i] = load_word<uint64_t>(own + i * kApart, inside);
    }
  }

  // C += A B of part `m` of a tile.
  __device__ __forceinline__ void multiply_add(float (&sums)[4], int m,
                                               const uint32_t (&taps)[2]) const {
    const uint64_t upper = quads[2 * m], lower = quads[2 * m + 1];
    const uint32_t a[4] = {static_cast<uint32_t>(upper), static_cast<uint32_t>(lower),
                           static_cast<uint32_t>(upper >> 32), static_cast<uint32_t>(lower >> 32)};
    multiply_add_matrices<T>(sums, a, taps);
  }
};

// Blocks of a multiprocessor, as registers allow.
constexpr int direct_blocks(int tiles, bool far) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 750
  return 768 / direct_threads(tiles);  // of 1024 threads; with all of them bf16 spills
#else
  return tiles == 1 ? 6 : far ? 9 : 10;
#endif
}

// `value`, of which the compiler doesn't know that it is: what is made of it is made again, where
// it is rarely asked for, instead of kept in registers from before.
__device__ __forceinline__ uint32_t launder(uint32_t value) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+r"(value));
#endif
  return value;
}

// A product of 16 places, which reach over kDirectNear taps with the values of a quad ahead of
// them; if kFar, one of 16 more. Where a warp has several tiles, the last one of a row also makes
// up to kDirectRest outputs behind them, one a lane.
template <typename T, int kTiles, bool kFar>
__global__ void __launch_bounds__(direct_threads(kTiles), direct_blocks(kTiles, kFar))
    direct_kernel(const __grid_constant__ ChunkArgs args) {
  constexpr int kTile = kMmaParts * kMmaOutputs;
  let_next_grid_start();
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  const uint32_t warp = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  wait_for_grid_before();
  if (warp >= args.warps) return;

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

  const auto sum_at = [&](int32_t place) {
    const Chunk<T, kTile> again(args, launder(warp));
    float sum = 0;
#pragma unroll 1
    for (int32_t k = 0; k < args.taps; ++k) {
      const int32_t from = place - args.padding + k;
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
    const int32_t behind = chunk.begin + kTiles * kTile;
    if (!chunk.is_last || behind >= args.to_size) return;
    const Chunk<T, kTile> again(args, launder(warp));
    const int32_t place = behind + lane, under = place - args.padding;
    const TapWords<T> all_taps(again.weight, args, 0);
    float sum[1] = {};
#pragma unroll 4
    for (int32_t k = 0; k < args.taps; ++k) {
      const bool inside = static_cast<uint32_t>(under + k) < static_cast<uint32_t>(args.from_size);
      const T value = load_if(again.from + under + k, inside);
      sum[0] = multiply_add(to_compute(value), all_taps.value(k), sum[0]);
    }
    sum[0] += load_bias<T>(args, again.channel);
    activate(sum, args.activation);
    if (place < args.to_size) again.to[place] = from_compute<T>(sum[0]);
  }
}

template <typename T>
cudaError_t launch(const DirectPlan& plan, void* to, cudaStream_t stream) {
  if constexpr (sizeof(T) != 2) {
    return cudaErrorInvalidValue;
  } else {
    auto args = plan.args;
    args.to = to;
    const auto start = [&](auto kernel) {
      return launch_kernel(kernel, plan.launch, stream, args);
    };
    if (plan.tiles == 1) {
      return plan.far ? start(direct_kernel<T, 1, true>) : start(direct_kernel<T, 1, false>);
    }
    return plan.far ? start(direct_kernel<T, 2, true>) : start(direct_kernel<T, 2, false>);
  }
}

}  // namespace gpuopt::conv1d
