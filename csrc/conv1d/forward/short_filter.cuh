// Convolutions of the half types of one input channel a group and few taps, of step 1 along
// contiguous rows, on tensor cores: as mma_kernel, with B in registers.
#pragma once

#include "conv1d/forward/short_filter.h"
#include "conv1d/forward/toeplitz.cuh"

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

// Taps side by side, up to kFewTaps: a product of 16 places, and where these don't reach one of 8
// more.
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
  const TapWords<T> taps(chunk.weight, args, ahead);
  const auto row = static_cast<int32_t>(2 * (lane % 4));
  const uint32_t first[2] = {taps.at(row), taps.at(row + 8)}, rest = taps.at(row + 16);
  const float bias = load_bias<T>(args, chunk.channel);
  copies.wait();
  __syncwarp();

  const auto sum_at = [&](int32_t place) {
    float sum = 0;
#pragma unroll 1
    for (int32_t k = 0; k < args.taps; ++k) {
      const T value = reinterpret_cast<const T*>(packs)[ahead + place - chunk.begin + k];
      sum = multiply_add(to_compute(value), to_compute(chunk.weight[k * args.weight_tap]), sum);
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
    multiply_add_matrices<T>(sums[0], a[0], first);
    multiply_add_matrices<T>(sums[1], a[1], first);
    if (is_far) {
      uint32_t more[4];
      load_matrices<0>(more, far);
      const uint32_t upper[2] = {more[0], more[1]}, lower[2] = {more[2], more[3]};
      multiply_add_matrices<T>(sums[0], upper, rest);
      multiply_add_matrices<T>(sums[1], lower, rest);
    }
    store_tile(sums, args, chunk.to, place, bias, sum_at);
    near += kTile / N;
    far += kTile / N;
    place += kTile;
  }
}

template <typename T>
cudaError_t launch(const ShortFilterPlan& plan, void* to, cudaStream_t stream) {
  if constexpr (sizeof(T) != 2) {
    return cudaErrorInvalidValue;
  } else {
    auto args = plan.args;
    args.to = to;
    return launch_kernel(few_taps_kernel<T>, plan.launch, stream, args);
  }
}

}  // namespace gpuopt::conv1d
