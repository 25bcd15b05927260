// Products of small matrices, for conv1d: common/mma.cuh, and the same by shuffles for GPUs without
// bf16 tensor cores. All threads of the warp take part.
#pragma once

#include <cstring>

#include "common/mma.cuh"
#include "common/types.cuh"
#include "conv1d/geometry.h"

namespace gpuopt::conv1d {

// C += A B with fragments of m16n8k16.
template <typename T>
__device__ __forceinline__ void multiply_add_matrices(float (&c)[4], const uint32_t (&a)[4],
                                                      const uint32_t (&b)[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  mma_half<T>(c, a, b);
#else
  // A word holds two values. A thread's words of A are in rows lane / 4 and lane / 4 + 8, at
  // columns 2 * (lane % 4) and 8 further on. Its words of B are in column lane / 4, at rows 2 *
  // (lane % 4) and 8 further on.
  const uint32_t lane = threadIdx.x % 32;
  const auto add = [](float& sum, uint32_t x, uint32_t y) {
    T first[2], second[2];
    memcpy(first, &x, sizeof(x));
    memcpy(second, &y, sizeof(y));
    sum += to_compute(first[0]) * to_compute(second[0]);
    sum += to_compute(first[1]) * to_compute(second[1]);
  };
  const auto word_of = [](uint32_t word, uint32_t other) {
    return __shfl_sync(0xffffffffu, word, static_cast<int>(other));
  };
#pragma unroll 1  // unrolling takes the compiler minutes
  for (uint32_t i = 0; i < 4; ++i) {
    uint32_t rows[4];
    for (uint32_t j = 0; j < 4; ++j) rows[j] = word_of(a[j], lane / 4 * 4 + i);
    for (uint32_t column = 0; column < 2; ++column) {
      const uint32_t other = (2 * (lane % 4) + column) * 4 + i;
      const uint32_t low = word_of(b[0], other), high = word_of(b[1], other);
      for (uint32_t half = 0; half < 2; ++half) {
        add(c[2 * half + column], rows[half], low);
        add(c[2 * half + column], rows[half + 2], high);
      }
    }
  }
#endif
}

// Loads four 8 x 8 matrices as a thread's part of A (PTX ISA, "ldmatrix"). The rows of matrix i
// begin at `row_vec` + kVecs of lanes 8 i to 8 i + 7.
template <int kVecs = 0>
__device__ __forceinline__ void load_fragment(uint32_t (&a)[4], const uint4* row_vec) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4+%5];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row_vec))),
                 "n"(kVecs * kVecBytes));
#else
  const uint4 vec = row_vec[kVecs];
  const uint32_t words[4] = {vec.x, vec.y, vec.z, vec.w};
  const uint32_t lane = threadIdx.x % 32;
  for (uint32_t i = 0; i < 4; ++i) {
    for (uint32_t word = 0; word < 4; ++word) {
      const uint32_t got =
          __shfl_sync(0xffffffffu, words[word], static_cast<int>(8 * i + lane / 4));
      if (lane % 4 == word) a[i] = got;
    }
  }
#endif
}

// Loads two or four matrices, each transposed: a thread's words hold values of one column. Lanes
// from 16 on name no rows of two matrices.
template <int kMatrices>
__device__ __forceinline__ void load_transposed(uint32_t (&words)[kMatrices],
                                                const uint4* row_vec) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row_vec));
  if constexpr (kMatrices == 4) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address));
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(words[0]), "=r"(words[1])
                 : "r"(address));
  }
#else
  const uint32_t from[4] = {row_vec->x, row_vec->y, row_vec->z, row_vec->w};
  const uint32_t lane = threadIdx.x % 32;
  for (uint32_t i = 0; i < 2 * kMatrices; ++i) {  // half i % 2 of word i / 2
    for (uint32_t word = 0; word < 4; ++word) {
      const uint32_t row = 8 * (i / 2) + 2 * (lane % 4) + i % 2;
      const uint32_t got = __shfl_sync(0xffffffffu, from[word], static_cast<int>(row));
      if (lane / 8 != word) continue;
      const uint32_t half = got >> lane / 4 % 2 * 16 & 0xffff;
      words[i / 2] = i % 2 == 0 ? half : words[i / 2] | half << 16;
    }
  }
#endif
}

}  // namespace gpuopt::conv1d
