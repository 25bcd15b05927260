// Element types on the device: storage types in memory, compute types in registers, and the
// conversions between them.
//
// Integers of one width share a storage type, because the operations of this library (products,
// sums, fused multiply-add) wrap and so don't depend on the sign.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "common/dtype.h"

namespace gpuopt {

// Any non-zero byte is true, as in ATen (c10::load<bool>).
struct Bool {
  uint8_t byte;
};

template <typename T>
struct alignas(2 * sizeof(T)) Complex {
  T re;
  T im;
};

template <typename T>
__device__ __forceinline__ Complex<T> operator+(Complex<T> a, Complex<T> b) {
  return {a.re + b.re, a.im + b.im};
}

// The textbook formula, as in c10::complex: inf and NaN don't follow C99 Annex G.
template <typename T>
__device__ __forceinline__ Complex<T> operator*(Complex<T> a, Complex<T> b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

// a * b + c by fused multiply-add: a real result is rounded once, each part of a complex one twice.
template <typename V>
__device__ __forceinline__ V multiply_add(V a, V b, V c) {
  if constexpr (std::is_same_v<V, float>) {
    return fmaf(a, b, c);
  } else if constexpr (std::is_same_v<V, double>) {
    return fma(a, b, c);
  } else if constexpr (std::is_integral_v<V>) {
    return a * b + c;
  } else {
    return {multiply_add(a.re, b.re, multiply_add(-a.im, b.im, c.re)),
            multiply_add(a.re, b.im, multiply_add(a.im, b.re, c.im))};
  }
}

template <typename T>
constexpr Category kCategory = std::is_integral_v<T> ? Category::kInteger : Category::kFloat;
template <>
inline constexpr Category kCategory<Bool> = Category::kBool;
template <typename T>
constexpr Category kCategory<Complex<T>> = Category::kComplex;

// Compute type of a storage type: f32 for the half types, 32 bits for narrower integers.
template <typename T>
struct ComputeType {
  using type = T;
};
template <>
struct ComputeType<Bool> {
  using type = bool;
};
template <>
struct ComputeType<uint8_t> {
  using type = uint32_t;
};
template <>
struct ComputeType<uint16_t> {
  using type = uint32_t;
};
template <>
struct ComputeType<__half> {
  using type = float;
};
template <>
struct ComputeType<__nv_bfloat16> {
  using type = float;
};
template <>
struct ComputeType<Complex<__half>> {
  using type = Complex<float>;
};
template <typename T>
using compute_t = typename ComputeType<T>::type;

template <typename T>
__device__ __forceinline__ compute_t<T> to_compute(T x) {
  return x;
}
template <>
__device__ __forceinline__ bool to_compute(Bool x) {
  return x.byte != 0;
}
template <>
__device__ __forceinline__ float to_compute(__half x) {
  return __half2float(x);
}
template <>
__device__ __forceinline__ float to_compute(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
template <>
__device__ __forceinline__ Complex<float> to_compute(Complex<__half> x) {
  return {__half2float(x.re), __half2float(x.im)};
}

template <typename T>
__device__ __forceinline__ T from_compute(compute_t<T> x) {
  if constexpr (std::is_same_v<T, Bool>) {
    return Bool{static_cast<uint8_t>(x)};
  } else if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(x);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(x);
  } else if constexpr (std::is_same_v<T, Complex<__half>>) {
    return {__float2half_rn(x.re), __float2half_rn(x.im)};
  } else {
    return static_cast<T>(x);
  }
}

// Converts a scalar argument to a compute type.
template <typename C>
__host__ __device__ C from_scalar(const ScalarValue& s) {
  if constexpr (std::is_same_v<C, Complex<float>>) {
    return {static_cast<float>(s.re), static_cast<float>(s.im)};
  } else if constexpr (std::is_same_v<C, Complex<double>>) {
    return {s.re, s.im};
  } else if constexpr (std::is_same_v<C, bool>) {
    return s.integer != 0;
  } else if constexpr (std::is_integral_v<C>) {
    return static_cast<C>(s.integer);
  } else {
    return static_cast<C>(s.re);
  }
}

// Calls f with a value-initialised object of the storage type of dtype.
template <typename F>
auto dispatch_storage(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kBool:
      return f(Bool{});
    case DType::kUInt8:
    case DType::kInt8:
      return f(uint8_t{});
    case DType::kInt16:
      return f(uint16_t{});
    case DType::kInt32:
      return f(uint32_t{});
    case DType::kInt64:
      return f(uint64_t{});
    case DType::kFloat16:
      return f(__half{});
    case DType::kBFloat16:
      return f(__nv_bfloat16{});
    case DType::kFloat32:
      return f(float{});
    case DType::kFloat64:
      return f(double{});
    case DType::kComplex32:
      return f(Complex<__half>{});
    case DType::kComplex64:
      return f(Complex<float>{});
    case DType::kComplex128:
      break;
  }
  return f(Complex<double>{});
}

}  // namespace gpuopt
