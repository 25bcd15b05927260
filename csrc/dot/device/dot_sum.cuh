// The arithmetic of dot products: the type of sums and the order of additions.
#pragma once

#include "common/index.h"
#include "common/types.cuh"
#include "common/vec.cuh"
#include "common/warp.cuh"

namespace gpuopt::dot {

// The type in which values of T are multiplied and summed: f32 for f16 and bf16, whose products it
// holds exactly (of bf16, within the range of its exponent). Narrow integers wrap around, so the
// high bits of their sums don't matter.
template <typename T>
using sum_t = compute_t<T>;

template <typename V>
__device__ __forceinline__ V multiply(V a, V b) {
  return a * b;
}

template <typename V>
__device__ __forceinline__ V conjugate(V value, bool conjugates) {
  if constexpr (requires { value.im; }) {
    if (conjugates) value.im = -value.im;
  }
  return value;
}

// Adds N values in pairs, in log2(N) steps. The rounding error grows no faster than that.
template <int N, typename V>
__device__ __forceinline__ V sum_in_pairs(V (&values)[N]) {
#pragma unroll
  for (int step = 1; step < N; step *= 2) {
#pragma unroll
    for (int i = 0; i + step < N; i += 2 * step) values[i] = values[i] + values[i + step];
  }
  return values[0];
}

// The dot product of two 16-byte vectors.
template <typename T>
__device__ __forceinline__ sum_t<T> dot_of(const uint4& self, const uint4& tensor,
                                           bool conjugates) {
  using V = sum_t<T>;
  constexpr int N = kVecSize<T>;
  const auto a = vec_of<T>(self), b = vec_of<T>(tensor);
  const auto factor = [&](int i) { return conjugate(to_compute(a.values[i]), conjugates); };
  if constexpr (N == 1) {
    return multiply(factor(0), to_compute(b.values[0]));
  } else {
    V sums[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      sums[i] = multiply_add(factor(2 * i + 1), to_compute(b.values[2 * i + 1]),
                             multiply(factor(2 * i), to_compute(b.values[2 * i])));
    }
    return sum_in_pairs(sums);
  }
}

// Sums over groups of `lanes` neighbouring threads of a warp. `lanes` is a power of two. All
// threads of a group get the result.
template <typename V>
__device__ __forceinline__ V sum_lanes(V value, uint32_t lanes) {
  for (uint32_t mask = 1; mask < lanes; mask *= 2) {
    value = value + shuffle_xor(value, static_cast<int>(mask));
  }
  return value;
}

}  // namespace gpuopt::dot
