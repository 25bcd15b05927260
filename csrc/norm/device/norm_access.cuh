// Reads and writes of rows, and of their factors and addends.
#pragma once

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

// Widens values to the compute type.
template <typename S, int kValues, typename C>
__device__ __forceinline__ void widen(const Vec<S, kValues>& vec, C* values) {
#pragma unroll
  for (int i = 0; i < kValues; ++i) values[i] = to_compute(vec.values[i]);
}

// The sum of the values of a unit, in pairs.
template <int kValues, typename C>
__device__ __forceinline__ C sum_of(const C (&values)[kValues]) {
  if constexpr (kValues == 1) {
    return values[0];
  } else {
    C sum = 0;
#pragma unroll
    for (int i = 0; i < kValues; i += 2) sum += values[i] + values[i + 1];
    return sum;
  }
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
        widen(load_vec<float, kStep>(static_cast<const float*>(data) + position + i), values + i);
      }
      return;
    }
  }
  widen(load_vec<T, kValues>(static_cast<const T*>(data) + position), values);
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
