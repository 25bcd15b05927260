// Sums of weight gradients on tensor cores, in fp16 and bf16 (PTX ISA, "Matrix Fragments for
// mma.m16n8k16"). Row b of B holds the gradient of block b of 8 positions. Column b of A holds
// inputs, from the input under the block's first position on.
//
//   D[m][n] = sum over blocks b of x[8 b + m] * grad[8 b + n]
//   gradient of tap k = D[k][0] + D[k + 1][1] + ... + D[k + 7][7], a diagonal of D
#pragma once

#include "conv1d/device/mma.cuh"
#include "conv1d/weight_gradient/chunks.h"
#include "conv1d/weight_gradient/sums.cuh"

namespace gpuopt::conv1d {

// D has 16 * kMatrices rows, for taps up to 16 * kMatrices - 15 positions apart.
template <typename T, int kMatrices>
class MatrixSums {
 public:
  static constexpr int kTile = kMmaOutputs;
  static constexpr bool kMasks = false;

  struct Scratch {
    float products[16 * kMatrices][kScratchPitch];
    __device__ __forceinline__ float sum(uint32_t tap) const { return products[tap][0]; }
  };

  __device__ __forceinline__ void add(const uint4* input, const uint4* grads, int32_t ahead,
                                      int32_t, int32_t, uint32_t taps, uint32_t dilation) {
    const uint32_t used = used_matrices(ahead, taps, dilation);
    const uint32_t lane = threadIdx.x % 32;
    uint32_t b[2];
    load_transposed(b, grads + lane % 16);
    const uint4* const input_row = input + lane % 8 + lane / 8 % 2 + lane / 16 * 8;
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) {
      if (m < used) {
        uint32_t a[4];
        load_transposed(a, input_row + 2 * m);
        multiply_add_matrices<T>(sums_[m], a, b);
      }
    }
  }

  // Ends a chunk. Diagonals depend on `ahead`, so they are summed before it changes.
  __device__ __forceinline__ void iteration(Scratch& scratch, int32_t ahead, bool changes,
                                            uint32_t taps, uint32_t dilation) {
    if (!changes) return;
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scratch.products[row_of(m, i)][column_of(i)] = sums_[m][i];
        sums_[m][i] = 0;
      }
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kThreadTaps; ++i) {
      const uint32_t tap = threadIdx.x % 32 + 32 * i;
      if (tap < taps) {
        const uint32_t row = tap * dilation + ahead;
#pragma unroll
        for (int n = 0; n < 8; ++n) tap_sums_[i] += scratch.products[row + n][n];
      }
    }
    __syncwarp();
  }

  // Adds a thread's sums to `totals`, which has a sum per tap.
  __device__ __forceinline__ void add_to(float* totals, uint32_t taps) const {
#pragma unroll
    for (int i = 0; i < kThreadTaps; ++i) {
      const uint32_t tap = threadIdx.x % 32 + 32 * i;
      if (tap < taps) totals[tap] += tap_sums_[i];
    }
  }

  __device__ __forceinline__ void finish(Scratch& scratch) const {
#pragma unroll
    for (int i = 0; i < kThreadTaps; ++i) {
      const uint32_t tap = threadIdx.x % 32 + 32 * i;
      if (tap < 16 * kMatrices) scratch.products[tap][0] = tap_sums_[i];
    }
  }

 private:
  static constexpr int kThreadTaps = (kMatrices + 1) / 2;  // per thread: tap `lane` and every 32nd

  __device__ __forceinline__ static uint32_t used_matrices(int32_t ahead, uint32_t taps,
                                                           uint32_t dilation) {
    return ((taps - 1) * dilation + ahead + 7) / 16 + 1;
  }
  // Row and column of the thread's value i of matrix m of D.
  __device__ __forceinline__ static uint32_t row_of(uint32_t m, uint32_t i) {
    return 16 * m + threadIdx.x % 32 / 4 + i / 2 * 8;
  }
  __device__ __forceinline__ static uint32_t column_of(uint32_t i) {
    return threadIdx.x % 4 * 2 + i % 2;
  }

  float sums_[kMatrices][4] = {};
  float tap_sums_[kThreadTaps] = {};
};

}  // namespace gpuopt::conv1d
