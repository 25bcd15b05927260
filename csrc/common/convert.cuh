// Conversions between element types, and dispatch on the type that memory holds.
#pragma once

#include <type_traits>

#include "common/types.cuh"

namespace gpuopt {

// Converts as ATen's copy does: to the compute type of T, then rounded to T. A real T drops the
// imaginary part of a complex value; a bool is true if either part is not 0.
template <typename T, typename S>
__device__ __forceinline__ T convert(S value) {
  using C = compute_t<T>;
  const auto x = to_compute(value);
  using X = std::remove_const_t<decltype(x)>;
  if constexpr (std::is_same_v<X, C>) {
    return from_compute<T>(x);
  } else if constexpr (requires(C c) { c.re; }) {
    using R = decltype(C::re);
    if constexpr (requires(X c) { c.re; }) {
      return from_compute<T>(C{static_cast<R>(x.re), static_cast<R>(x.im)});
    } else {
      return from_compute<T>(C{static_cast<R>(x), R{0}});
    }
  } else if constexpr (requires(X c) { c.re; }) {
    if constexpr (std::is_same_v<C, bool>) {
      return from_compute<T>(x.re != 0 || x.im != 0);
    } else {
      return from_compute<T>(static_cast<C>(x.re));
    }
  } else {
    return from_compute<T>(static_cast<C>(x));
  }
}

// Calls f with a value-initialised object of the element type. Unlike dispatch_storage, it
// distinguishes signed from unsigned integers.
template <typename F>
__device__ __forceinline__ auto dispatch_stored(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kBool:
      return f(Bool{});
    case DType::kUInt8:
      return f(uint8_t{});
    case DType::kInt8:
      return f(int8_t{});
    case DType::kInt16:
      return f(int16_t{});
    case DType::kInt32:
      return f(int32_t{});
    case DType::kInt64:
      return f(int64_t{});
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
