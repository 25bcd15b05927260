// Reads and writes of rows, and of their factors and addends.
#pragma once

#include "common/convert.cuh"
#include "common/dtype.h"
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
// A unit of a row as it lies in memory. Kernels that keep it in a loop need words: the compiler
// gives each value of 16 bits a register.
template <typename T, int kValues>
using Words = typename Word<sizeof(Vec<T, kValues>)>::type;

// Reads a unit, or zeros if not `valid`. There is no branch, so several reads are in flight.
template <typename T, int kValues>
__device__ __forceinline__ Words<T, kValues> load_words(const T* aligned, bool valid) {
  return load_word<Words<T, kValues>>(aligned, valid);
}
template <typename T, int kValues>
__device__ __forceinline__ Vec<T, kValues> load_unit(const T* aligned, bool valid) {
  const auto words = load_words<T, kValues>(aligned, valid);
  Vec<T, kValues> unit;
  memcpy(&unit, &words, sizeof(unit));
  return unit;
}

// Widens the values of a unit, in words or in a vector, to the compute type.
template <typename T, int kValues, typename Unit, typename C = compute_t<T>>
__device__ __forceinline__ void widen(const Unit& unit, C* values) {
  static_assert(sizeof(Unit) == sizeof(Vec<T, kValues>));
  if constexpr (std::is_same_v<T, __nv_bfloat16> && kValues > 1) {
    // The upper half of a float32. This takes one instruction for each value.
    uint32_t words[kValues / 2];
    memcpy(words, &unit, sizeof(words));
#pragma unroll
    for (int i = 0; i < kValues / 2; ++i) {
      const uint32_t both[2] = {words[i] << 16, words[i] & 0xffff0000u};
      memcpy(values + 2 * i, both, sizeof(both));
    }
  } else {
    Vec<T, kValues> vec;
    memcpy(&vec, &unit, sizeof(vec));
#pragma unroll
    for (int i = 0; i < kValues; ++i) values[i] = to_compute(vec.values[i]);
  }
}

// The sum of two units, rounded as ATen's addition rounds it.
template <typename T, int kValues, typename Unit>
__device__ __forceinline__ Unit add_units(const Unit& a, const Unit& b) {
  compute_t<T> of_a[kValues], of_b[kValues];
  widen<T, kValues>(a, of_a);
  widen<T, kValues>(b, of_b);
  Vec<T, kValues> sums;
#pragma unroll
  for (int i = 0; i < kValues; ++i) sums.values[i] = from_compute<T>(of_a[i] + of_b[i]);
  Unit found;
  memcpy(&found, &sums, sizeof(found));
  return found;
}

template <typename T, int kValues, typename C>
__device__ __forceinline__ Vec<T, kValues> rounded(const C (&values)[kValues]) {
  Vec<T, kValues> found;
#pragma unroll
  for (int i = 0; i < kValues; ++i) found.values[i] = from_compute<T>(values[i]);
  return found;
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
        const auto* wide = static_cast<const float*>(data) + position + i;
        widen<float, kStep>(load_vec<float, kStep>(wide), values + i);
      }
      return;
    }
  }
  widen<T, kValues>(load_vec<T, kValues>(static_cast<const T*>(data) + position), values);
}

// A value whose dtype is an argument.
template <typename C>
__device__ __forceinline__ C load_value(const void* data, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::kFloat16:
      return static_cast<C>(to_compute(static_cast<const __half*>(data)[index]));
    case DType::kBFloat16:
      return static_cast<C>(to_compute(static_cast<const __nv_bfloat16*>(data)[index]));
    case DType::kFloat32:
      return static_cast<C>(static_cast<const float*>(data)[index]);
    default:
      return static_cast<C>(static_cast<const double*>(data)[index]);
  }
}

template <typename C>
__device__ __forceinline__ void store_value(void* data, DType dtype, int64_t index, C value) {
  switch (dtype) {
    case DType::kFloat16:
      static_cast<__half*>(data)[index] = convert<__half>(value);
      break;
    case DType::kBFloat16:
      static_cast<__nv_bfloat16*>(data)[index] = convert<__nv_bfloat16>(value);
      break;
    case DType::kFloat32:
      static_cast<float*>(data)[index] = convert<float>(value);
      break;
    default:
      static_cast<double*>(data)[index] = convert<double>(value);
  }
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
