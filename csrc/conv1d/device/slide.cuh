// A thread's neighbouring outputs along a contiguous row: taps slide over shared memory.
#pragma once

#include "conv1d/chunk.h"
#include "conv1d/device/rows.cuh"

namespace gpuopt::conv1d {

// sums[i] += taps[t] * window[t + i] for up to kTaps of `count` taps. Missing taps are skipped: 0
// times an infinite value is NaN.
template <int kTaps, int kOutputs, int kWindow, typename C>
__device__ __forceinline__ void add_products(C (&sums)[kOutputs], const C (&window)[kWindow],
                                             const C* taps, int32_t count) {
  constexpr int kStep = kVecBytes / sizeof(C);
#pragma unroll
  for (int first = 0; first < kTaps; first += kStep) {
    if (first < count) {
      const auto own = load_vec<C, kStep>(taps + first);
      const auto add = [&](int t) {
#pragma unroll
        for (int i = 0; i < kOutputs; ++i) {
          sums[i] = multiply_add(own.values[t], window[first + t + i], sums[i]);
        }
      };
      if (first + kStep <= count) {
#pragma unroll
        for (int t = 0; t < kStep; ++t) add(t);
      } else {
#pragma unroll
        for (int t = 0; t < kStep - 1; ++t) {
          if (first + t < count) add(t);
        }
      }
    }
  }
}

// Adds one input row of the tile to a thread's outputs, row_taps() taps per iteration. The window
// begins `shift` bytes into the first vector and stays in registers.
template <bool kOneStep, typename T, int P>
__device__ __forceinline__ void slide(compute_t<T> (&sums)[P], const uint4* vecs, uint32_t shift,
                                      const compute_t<T>* taps, int32_t count) {
  constexpr int N = kVecSize<T>, K = row_taps(sizeof(T));
  compute_t<T> window[P + K];
  uint4 last;
  {
    uint4 raw[(P + K) / N + 1];
    read_vecs(raw, vecs);
    shift_in<T, (P + K) / N>(window, raw, shift);
    last = raw[(P + K) / N];
  }
  vecs += (P + K) / N + 1;
  for (;;) {
    add_products<K>(sums, window, taps, count);
    if (kOneStep || count <= K) return;
    count -= K;
    taps += K;
    uint4 raw[K / N + 1];
    raw[0] = last;
#pragma unroll
    for (int i = 0; i < K / N; ++i) raw[i + 1] = vecs[i];
    vecs += K / N;
#pragma unroll
    for (int i = 0; i < P; ++i) window[i] = window[i + K];
    shift_in<T, K / N>(window + P, raw, shift);
    last = raw[K / N];
  }
}

// slide() for dilated taps. Each tap loads a window of its own, from byte `position` of the tile's
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

}  // namespace gpuopt::conv1d
