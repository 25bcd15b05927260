// Reads and writes of rows, and of their factors and addends.
#pragma once

#include "common/recomputed.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"
#include "norm/norm_args.h"

namespace gpuopt::norm {

template <size_t bytes>
struct Word;
template <>
struct Word<2> {
  using type = uint16_t;
};
template <>
struct Word<4> {
  using type = uint32_t;
};
template <>
struct Word<8> {
  using type = uint64_t;
};
template <>
struct Word<16> {
  using type = uint4;
};
template <size_t bytes>
using WordOf = typename Word<bytes>::type;

// A unit of a row, or zeros if not `valid`. There is no branch, so several reads are in flight.
template <typename T, int kValues>
__device__ __forceinline__ Vec<T, kValues> load_unit(const T* aligned, bool valid) {
  using Unit = Vec<T, kValues>;
  const auto word = load_word<WordOf<sizeof(Unit)>>(aligned, valid);
  Unit unit;
  memcpy(&unit, &word, sizeof(unit));
  return unit;
}

// Makes the compiler convert values again where they are used next. It would keep the converted
// ones in registers, and half types take twice as many.
template <typename T, int kValues, int kSlots>
__device__ __forceinline__ void forget_conversions(Vec<T, kValues> (&units)[kSlots]) {
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(T) == 2) {
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if constexpr (kValues == 1) {
        uint16_t word;
        memcpy(&word, &units[s], 2);
        asm volatile("" : "+h"(word));
        memcpy(&units[s], &word, 2);
      } else {
        uint32_t words[kValues / 2];
        memcpy(words, &units[s], sizeof(words));
#pragma unroll
        for (int i = 0; i < kValues / 2; ++i) words[i] = recomputed(words[i]);
        memcpy(&units[s], words, sizeof(words));
      }
    }
  }
#endif
}

// Widens values to the compute type.
template <typename C, typename S, int kValues>
__device__ __forceinline__ void widen(const Vec<S, kValues>& vec, C* values) {
#pragma unroll
  for (int i = 0; i < kValues; ++i) values[i] = to_compute(vec.values[i]);
}

// The factors or addends of a unit, or `missing`.
template <typename T, int kValues, typename C = compute_t<T>>
__device__ __forceinline__ void load_parameters(const void* data, bool is_wide, int64_t position,
                                                C missing, C (&values)[kValues]) {
  if (data == nullptr) {
#pragma unroll
    for (int i = 0; i < kValues; ++i) values[i] = missing;
    return;
  }
  if constexpr (sizeof(T) == 2) {
    if (is_wide) {
      constexpr int kStep = kValues < 4 ? kValues : 4;
#pragma unroll
      for (int i = 0; i < kValues; i += kStep) {
        widen<C>(load_vec<float, kStep>(static_cast<const float*>(data) + position + i),
                 values + i);
      }
      return;
    }
  }
  widen<C>(load_vec<T, kValues>(static_cast<const T*>(data) + position), values);
}

template <typename C>
__device__ __forceinline__ C inverse_root(C value) {
#if defined(__CUDA_ARCH__)
  return rsqrt(value);
#else
  return 1 / sqrt(value);
#endif
}

}  // namespace gpuopt::norm
