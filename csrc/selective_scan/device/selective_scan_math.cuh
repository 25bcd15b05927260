// The functions of a selective scan, and sums over the lanes of a warp.
#pragma once

#include "common/convert.cuh"
#include "common/floats.cuh"
#include "common/warp.cuh"

namespace gpuopt::selective {

// 2^x by one instruction: an error of at most 2 ulp (PTX ISA, "ex2").
__device__ __forceinline__ float exp2_of(float x) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  return exp2f(x);
#endif
}
__device__ __forceinline__ double exp2_of(double x) { return exp2(x); }

template <typename C>
constexpr C kLog2E = static_cast<C>(1.4426950408889634074);
template <typename C>
constexpr C kLn2 = static_cast<C>(0.69314718055994530942);

__device__ __forceinline__ float reciprocal(float x) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  return 1 / x;
#endif
}
// For x >= 1. An approximation and Newton's steps, because a division is a function call.
__device__ __forceinline__ double reciprocal(double x) {
#if defined(__CUDA_ARCH__)
  double result;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(result) : "d"(x));
#pragma unroll
  for (int i = 0; i < 3; ++i) result = fma(result, fma(-x, result, 1.0), result);
  return isinf(x) ? 0 : result;
#else
  return 1 / x;
#endif
}

template <typename C>
__device__ __forceinline__ C sigmoid(C x) {
  return reciprocal(1 + exp2_of(-kLog2E<C> * x));
}

// max(x, 0) + log(1 + e), where e = exp(-|x|) and log(1 + e) = 2 artanh(e / (2 + e)). The series of
// artanh converges fast, because its argument is at most 1/3. The error is a few ulp for every x,
// and above 20 the result is x.
__device__ __forceinline__ float softplus(float x) {
  constexpr int kTerms = 8;
  const float e = exp2_of(-kLog2E<float> * fabsf(x));
  const float s = e * reciprocal(2 + e), q = s * s;
  float sum = 1.0f / (2 * kTerms - 1);
#pragma unroll
  for (int k = kTerms - 1; k > 0; --k) sum = fmaf(sum, q, 1.0f / (2 * k - 1));
  return fmaf(2 * s, sum, fmaxf(x, 0.0f));
}
// As torch.nn.functional.softplus: linear above 20.
__device__ __forceinline__ double softplus(double x) { return x > 20 ? x : log1p(exp(x)); }

__device__ __forceinline__ float softplus_slope(float x) { return sigmoid(x); }
__device__ __forceinline__ double softplus_slope(double x) { return x > 20 ? 1 : sigmoid(x); }

// Calls f with a null pointer to the type. Both types of 16 bits are integers.
template <typename F>
__device__ __forceinline__ void with_raw_type(DType dtype, F&& f) {
  if (dtype == DType::kFloat32) {
    f(static_cast<const float*>(nullptr));
  } else if (dtype == DType::kFloat64) {
    f(static_cast<const double*>(nullptr));
  } else {
    f(static_cast<const uint16_t*>(nullptr));
  }
}

template <typename C>
__device__ __forceinline__ C load_as(const void* data, int64_t index, DType dtype) {
  return with_float(dtype, [&](auto type) {
    return convert<C>(static_cast<const decltype(type)*>(data)[index]);
  });
}

template <typename C>
__device__ __forceinline__ void store_as(void* data, int64_t index, DType dtype, C value) {
  with_float(dtype, [&](auto type) {
    using T = decltype(type);
    static_cast<T*>(data)[index] = convert<T>(value);
  });
}

// Passed by value: the compiler chooses between the addresses of values that are passed by
// reference, which takes local memory.
template <typename C>
__device__ __forceinline__ C exchanged(C value, int bit) {
#if defined(__CUDA_ARCH__)
  return __shfl_xor_sync(0xffffffffu, value, bit);
#else
  return shuffle_xor(value, bit);
#endif
}

// Adds N values over kLanes lanes, whose indices differ in the bits from kFirst on. Each exchange
// halves the values that a lane is responsible for (a butterfly that transposes), so N values cost
// N - 1 exchanges and not N log2(kLanes):
//
//   lane       0           1           2           3
//   values     a b c d     a b c d     a b c d     a b c d
//   bit 0      a b         c d         a b         c d         each sums two lanes
//   bit 1      a           c           b           d           each sums four lanes
//
// Afterwards the first kSums<N, kLanes> values are sums, from number first_sum() on.
template <int kFirst, int kLanes, int kLeft, int N, typename C>
__device__ __forceinline__ void sum_left_over_lanes(C (&values)[N]) {
  if constexpr (kLanes > 1) {
    constexpr int kHalf = kLeft / 2;
    const bool upper = threadIdx.x & kFirst;
    if constexpr (kHalf == 0) values[0] += exchanged(values[0], kFirst);
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const C low = values[i], high = values[i + kHalf];
      values[i] = (upper ? high : low) + exchanged<C>(upper ? low : high, kFirst);
    }
    sum_left_over_lanes<kFirst * 2, kLanes / 2, (kHalf > 0 ? kHalf : 1)>(values);
  }
}
template <int kFirst, int kLanes, int N, typename C>
__device__ __forceinline__ void sum_over_lanes(C (&values)[N]) {
  sum_left_over_lanes<kFirst, kLanes, N>(values);
}

template <int N, int kLanes>
constexpr int kSums = N > kLanes ? N / kLanes : 1;

// The number of the first sum that a lane holds. Lanes from N on hold copies.
template <int N, int kLanes>
__device__ __forceinline__ int first_sum(int lane) {
  int sum = 0;
#pragma unroll
  for (int i = 0; (1 << i) < N && (1 << i) < kLanes; ++i) sum += (lane >> i & 1) * (N >> (i + 1));
  return sum;
}

}  // namespace gpuopt::selective
