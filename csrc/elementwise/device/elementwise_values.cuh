// Calls a functor on vectors, and converts between element types. A functor works in a compute type
// C (fp32 for fp16 and bf16, common/types.cuh):
//
//   template <typename C> struct Mul {
//     static constexpr int kInputs = 2;
//     __device__ C operator()(C a, C b) const { return a * b; }
//   };
//
// A functor may have an overload for __half2 or __nv_bfloat162, which handles two values at a time.
// Write one only if it gives the same bits as the fp32 arithmetic.
#pragma once

#include <type_traits>
#include <utility>

#include "common/convert.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

namespace gpuopt::elementwise {

template <typename T>
struct PairOf {
  struct None {};
  using type = None;
};
template <>
struct PairOf<__half> {
  using type = __half2;
};
template <>
struct PairOf<__nv_bfloat16> {
  using type = __nv_bfloat162;
};

template <typename F, typename X, size_t... I>
__device__ __forceinline__ auto call(const F& f, const X* inputs, std::index_sequence<I...>) {
  return f(inputs[I]...);
}

// Whether the functor has an overload for X.
template <typename F, typename X, typename Indices>
constexpr bool kTakes = false;
template <typename F, typename X, size_t... I>
constexpr bool kTakes<F, X, std::index_sequence<I...>> =
    std::is_invocable_r_v<X, const F&, decltype((void)I, X{})...>;

template <typename F, typename T, int N>
__device__ __forceinline__ Vec<T, N> apply(const F& f, const Vec<T, N>* inputs) {
  using Inputs = std::make_index_sequence<F::kInputs>;
  using Pair = typename PairOf<T>::type;
  Vec<T, N> out;
  if constexpr (N % 2 == 0 && kTakes<F, Pair, Inputs>) {
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      Pair x[F::kInputs];
#pragma unroll
      for (int k = 0; k < F::kInputs; ++k)
        x[k] = Pair(inputs[k].values[i], inputs[k].values[i + 1]);
      const Pair y = call(f, x, Inputs{});
      out.values[i] = y.x;
      out.values[i + 1] = y.y;
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      compute_t<T> x[F::kInputs];
#pragma unroll
      for (int k = 0; k < F::kInputs; ++k) x[k] = to_compute(inputs[k].values[i]);
      out.values[i] = from_compute<T>(call(f, x, Inputs{}));
    }
  }
  return out;
}

// ---------------------------------------------------------------- conversions

// Calls `body` with a value of the type that memory holds for `dtype`. Only categories in
// [kLow, kHigh] are compiled, because check_types() excludes the others.
template <Category kLow, Category kHigh, typename Body>
__device__ __forceinline__ void with_stored_type(DType dtype, Body&& body) {
  dispatch_stored(dtype, [&](auto type) {
    constexpr Category kStored = kCategory<decltype(type)>;
    if constexpr (kStored >= kLow && kStored <= kHigh) body(type);
  });
}

template <typename T, typename Body>
__device__ __forceinline__ void with_input_type(DType dtype, Body&& body) {
  with_stored_type<Category::kBool, kCategory<T>>(dtype, body);
}

template <typename T, typename Body>
__device__ __forceinline__ void with_output_type(DType dtype, Body&& body) {
  with_stored_type<kCategory<T>, Category::kComplex>(dtype, body);
}

// Loads N neighbouring values, in one access or in several of 16 bytes. `address` is aligned to the
// size of an access.
template <typename S, int N>
__device__ __forceinline__ Vec<S, N> load_values(const S* address) {
  if constexpr (sizeof(S) * N <= kAccessBytes) {
    return load_vec<S, N>(address);
  } else {
    constexpr int kPart = kAccessBytes / sizeof(S);
    Vec<S, N> vec;
#pragma unroll
    for (int i = 0; i < N; i += kPart) {
      const auto part = load_vec<S, kPart>(address + i);
#pragma unroll
      for (int j = 0; j < kPart; ++j) vec.values[i + j] = part.values[j];
    }
    return vec;
  }
}

}  // namespace gpuopt::elementwise
