// Toeplitz products of the rows of channel_tiles, in place. A row of A is a chunk of the outputs'
// row, not a vector of it. With chunks of 3 vectors:
//
//   row:  v0 v1 v2 | v3 v4 v5 | v6 v7 v8 | ...      vectors of 8 positions
//
//         A: v0 v1   B: taps     vector 0          A: v1 v2   B: taps     vector 1
//            v3 v4               of each              v4 v5               of each
//            v6 v7               chunk of             v7 v8               chunk of
//            ...                 the outputs          ...                 the outputs
//
// So a vector in registers meets the taps of several outputs, and shared memory is read less often
// than in toeplitz. The number of vectors per chunk is odd, because the rows of A then lie in
// different banks.
#pragma once

#include "conv1d/forward/toeplitz.cuh"

namespace gpuopt::conv1d {

// Multiplies 16 chunks of kVecs vectors with the taps. `first` is matrix row `lane` of A, `taps`
// the thread's tap in the first row of B.
template <typename T, int kVecs>
__device__ __forceinline__ void multiply_chunks(float (&sums)[kVecs][4], const uint4* first,
                                                const T* taps, uint32_t matrices) {
  static_assert(kVecs % 2 == 1);
  // Vectors of all chunks: those under the outputs and one more.
  uint32_t a[kVecs + 1][2];
  const auto load = [&](int i) {
    uint32_t both[4];
    load_fragment(both, first);
    first += 2;
    a[i][0] = both[0];
    a[i][1] = both[1];
    a[i + 1][0] = both[2];
    a[i + 1][1] = both[3];
  };
#pragma unroll
  for (int i = 0; i < kVecs; i += 2) load(i);
#pragma unroll 1
  for (uint32_t matrix = 0;;) {
    const TapPairs pairs = pairs_at(taps);
#pragma unroll
    for (int i = 0; i < kVecs; ++i) {
      const uint32_t fragment[4] = {a[i][0], a[i][1], a[i + 1][0], a[i + 1][1]};
      multiply_add_matrices<T>(sums[i], fragment, pairs.words);
    }
    if (++matrix == matrices) break;
    taps += 16;
#pragma unroll
    for (int i = 0; i < kVecs - 1; ++i) {
      a[i][0] = a[i + 2][0];
      a[i][1] = a[i + 2][1];
    }
    load(kVecs - 1);
  }
}

// Position of pair `pair` of a thread's sums in its 16 chunks.
template <int kVecs>
__device__ __forceinline__ uint32_t chunk_pair(uint32_t pair) {
  const uint32_t lane = threadIdx.x % 32;
  return (lane / 4 + pair % 2 * 8) * kVecs * 8 + pair / 2 * 8 + lane % 4 * 2;
}

// Computes the outputs of 16 chunks. They replace the inputs in `row`.
template <typename T, int kVecs, typename Args>
__device__ __forceinline__ void convolve_chunks(uint4* row, const T* taps, const Args& args,
                                                float bias) {
  const uint32_t lane = threadIdx.x % 32;
  float sums[kVecs][4] = {};
  multiply_chunks<T, kVecs>(sums, row + lane % 16 * kVecs + lane / 16,
                            taps + 2 * (lane % 4) - static_cast<int32_t>(lane / 4), args.matrices);
  Vec<T, 2> rounded[2 * kVecs];
  finish_sums(rounded, sums, args, bias, [&](uint32_t output) {
    const T* const input =
        reinterpret_cast<const T*>(row) + chunk_pair<kVecs>(output / 2) + output % 2;
    float sum = 0;
#pragma unroll 1
    for (int32_t k = 0; k < args.taps; ++k) {
      sum = multiply_add(to_compute(input[k]), to_compute(taps[k]), sum);
    }
    return sum;
  });
  __syncwarp();
#pragma unroll
  for (uint32_t pair = 0; pair < 2 * kVecs; ++pair) {
    store_vec(reinterpret_cast<T*>(row) + chunk_pair<kVecs>(pair), rounded[pair]);
  }
}

}  // namespace gpuopt::conv1d
