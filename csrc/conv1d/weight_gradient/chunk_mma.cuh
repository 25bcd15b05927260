// Sums of weight gradients of the half types on tensor cores. Of blocks of 8 places each, the
// values of the gradient are a row of B, and those of the input from the place under its first one
// on a column of A: D = A B holds in row m and column n the sum of products of all places n of a
// block with the input m places from its beginning on, so that a tap's gradient is the sum along a
// diagonal (PTX ISA, "Matrix Fragments for mma.m16n8k16").
#pragma once

#include "conv1d/weight_gradient/chunks.h"
#include "conv1d/weight_gradient/sums.cuh"

namespace gpuopt::conv1d {

// Of kMatrices times 16 rows of D: taps up to 16 kMatrices - 15 places apart.
template <typename T, int kMatrices>
class MatrixSums {
 public:
  static constexpr int kTile = kMmaOutputs;
  static constexpr bool kMasks = false;

  struct Scratch {
    float products[16 * kMatrices][8];
    __device__ __forceinline__ float sum(uint32_t tap) const { return products[tap][0]; }
  };

  __device__ __forceinline__ void add(const uint4* input, const uint4* grads, int32_t ahead,
                                      int32_t, int32_t, uint32_t taps, uint32_t dilation) {
    const uint32_t used = used_matrices(ahead, taps, dilation);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    const uint32_t lane = threadIdx.x % 32;
    const auto address_of = [](const uint4* packs) {
      return static_cast<uint32_t>(__cvta_generic_to_shared(packs));
    };
    uint32_t b[2];
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(b[0]), "=r"(b[1])
                 : "r"(address_of(grads + lane % 16)));
    const uint32_t address = address_of(input + lane % 8 + lane / 8 % 2 + lane / 16 * 8);
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) {
      if (m < used) {
        uint32_t a[4];
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                     : "r"(address + m * 2 * kPackBytes));
        multiply_add_matrices<T>(sums_[m], a, b);
      }
    }
#else
    const T* const from = reinterpret_cast<const T*>(input);
    const T* const grad = reinterpret_cast<const T*>(grads);
    for (uint32_t m = 0; m < used; ++m) {
      for (uint32_t i = 0; i < 4; ++i) {
        for (uint32_t block = 0; block < 16; ++block) {
          sums_[m][i] += to_compute(from[8 * block + row_of(m, i)]) *
                         to_compute(grad[8 * block + column_of(i)]);
        }
      }
    }
#endif
  }

  // The diagonals are where `ahead` says, and have to be summed up before it changes.
  __device__ __forceinline__ void turn(Scratch& scratch, int32_t ahead, bool changes, uint32_t taps,
                                       uint32_t dilation) {
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
    for (int i = 0; i < kOwnTaps; ++i) {
      const uint32_t tap = threadIdx.x % 32 + 32 * i;
      if (tap < taps) {
        const uint32_t row = tap * dilation + ahead;
#pragma unroll
        for (int n = 0; n < 8; ++n) own_taps_[i] += scratch.products[row + n][n];
      }
    }
    __syncwarp();
  }

  __device__ __forceinline__ void finish(Scratch& scratch) const {
#pragma unroll
    for (int i = 0; i < kOwnTaps; ++i) {
      const uint32_t tap = threadIdx.x % 32 + 32 * i;
      if (tap < 16 * kMatrices) scratch.products[tap][0] = own_taps_[i];
    }
  }

 private:
  static constexpr int kOwnTaps = (kMatrices + 1) / 2;  // of a lane: tap `lane` and every 32nd

  __device__ __forceinline__ static uint32_t used_matrices(int32_t ahead, uint32_t taps,
                                                           uint32_t dilation) {
    return ((taps - 1) * dilation + ahead + 7) / 16 + 1;
  }
  // Of D's value i of matrix m that the lane has.
  __device__ __forceinline__ static uint32_t row_of(uint32_t m, uint32_t i) {
    return 16 * m + threadIdx.x % 32 / 4 + i / 2 * 8;
  }
  __device__ __forceinline__ static uint32_t column_of(uint32_t i) {
    return threadIdx.x % 4 * 2 + i % 2;
  }

  float sums_[kMatrices][4] = {};
  float own_taps_[kOwnTaps] = {};
};

}  // namespace gpuopt::conv1d
