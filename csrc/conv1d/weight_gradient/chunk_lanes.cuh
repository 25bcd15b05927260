// Sums of weight gradients by multiply-adds: each thread sums other positions for all taps of a
// block.
#pragma once

#include "conv1d/forward/sliding.cuh"
#include "conv1d/weight_gradient/sums.cuh"

namespace gpuopt::conv1d {

template <typename T, int kTaps>
class LaneSums {
  using C = compute_t<T>;
  static constexpr int N = kVecSize<T>;

 public:
  static constexpr int kTile = 2 * kSecondVec * N;
  static constexpr bool kMasks = true;

  struct Scratch {
    C sums[kTaps];
    __device__ __forceinline__ C sum(uint32_t tap) const { return sums[tap]; }
  };

  __device__ __forceinline__ void add(const uint4* input, const uint4* grads, int32_t ahead,
                                      int32_t position, int32_t size, uint32_t taps, uint32_t) {
    const uint32_t lane = threadIdx.x % 32;
    input += lane;
    grads += lane;
    with_ahead<T>(ahead, [&](auto constant) {
      constexpr int kAhead = decltype(constant)::value;
      if (position >= 0 && position <= size - kTile) {
        add_vecs<kAhead>(input, grads, taps, [](int, int) { return true; });
      } else {
        // Missing positions are skipped: 0 times an infinite value is NaN.
        const int32_t first = position + static_cast<int32_t>(lane) * N;
        add_vecs<kAhead>(input, grads, taps, [&](int half, int i) {
          return static_cast<uint32_t>(first + half * kSecondVec * N + i) <
                 static_cast<uint32_t>(size);
        });
      }
    });
  }

  __device__ __forceinline__ void iteration(Scratch&, int32_t, bool, uint32_t, uint32_t) const {}

  __device__ __forceinline__ void finish(Scratch& scratch) {
    static_assert(kTaps <= 32);
    constexpr int kLanes = 32 / kTaps;  // threads with the same sum
    sum_warp<kTaps>(sums_);
    if (threadIdx.x % kLanes == 0) scratch.sums[threadIdx.x % 32 / kLanes] = sums_[0];
  }

 private:
  // Multiplies two gradient vectors with a ring of three input vectors for each, see Windows.
  template <int kAhead, typename Valid>
  __device__ __forceinline__ void add_vecs(const uint4* input, const uint4* grads, uint32_t taps,
                                           const Valid& valid) {
    C grad_values[2][N], ring[2][3 * N];
    const auto read = [&](int i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const auto vec = vec_of<T>(load_shared_whole(input + half * kSecondVec + i));
#pragma unroll
        for (int j = 0; j < N; ++j) ring[half][i % 3 * N + j] = vec.values[j];
      }
    };
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto vec = vec_of<T>(load_shared_whole(grads + half * kSecondVec));
#pragma unroll
      for (int j = 0; j < N; ++j) grad_values[half][j] = vec.values[j];
    }
    read(0);
    read(1);
#pragma unroll
    for (int k = 0; k < kTaps; k += N) {
      if (k >= taps) break;
      read(k / N + 2);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int i = 0; i < N; ++i) {
          if (valid(half, i)) {
#pragma unroll
            for (int t = 0; t < N; ++t) {
              sums_[k + t] = multiply_add(grad_values[half][i],
                                          ring[half][(kAhead + k + t + i) % (3 * N)], sums_[k + t]);
            }
          }
        }
      }
    }
  }

  C sums_[kTaps] = {};
};

}  // namespace gpuopt::conv1d
