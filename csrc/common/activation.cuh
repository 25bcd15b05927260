// Activations and their derivatives on the device.
#pragma once

#include "common/activation.h"
#include "common/types.cuh"

namespace gpuopt {

// numerator / (1 + exp(-x)). Half types use approximate instructions, whose error of a few fp32 ulp
// vanishes in the rounding. An accurate exponential and division are several times as many
// instructions, which memory traffic may not hide.
template <typename T, typename C>
__device__ __forceinline__ C times_sigmoid(C numerator, C x) {
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(T) == 2) {
    float exponential, reciprocal;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(exponential) : "f"(x * -1.4426950408889634f));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(1.0f + exponential));
    return numerator * reciprocal;
  }
#endif
  return numerator / (C(1) + exp(-x));
}

template <typename T, typename C>
__device__ __forceinline__ C silu(C x) {
  return times_sigmoid<T>(x, x);
}

template <typename T, typename C>
__device__ __forceinline__ C silu_derivative(C x) {
  const C sigmoid = times_sigmoid<T>(C(1), x);
  return sigmoid * (C(1) + x * (C(1) - sigmoid));
}

// The distribution function of normal numbers: gelu is x Phi(x).
template <typename C>
__device__ __forceinline__ C normal_share(C x) {
  return C(0.5) * (C(1) + erf(x * C(0.70710678118654752440)));
}

template <typename C>
__device__ __forceinline__ C gelu_derivative(C x) {
  const C density = exp(C(-0.5) * x * x) * C(0.39894228040143267794);
  return multiply_add(x, density, normal_share(x));
}

// The formulas of ATen's Activation.cu, on results of type T.
template <typename T, int Count, typename C>
__device__ __forceinline__ void activate(C (&values)[Count], Activation activation) {
  if (activation == Activation::kNone) return;
  const auto apply = [&](auto formula) {
#pragma unroll
    for (int i = 0; i < Count; ++i) values[i] = formula(values[i]);
  };
  if (activation == Activation::kRelu) {
    apply([](C x) { return x < C(0) ? C(0) : x; });  // NaN stays NaN
  } else if (activation == Activation::kSilu) {
    apply([](C x) { return silu<T>(x); });
  } else {
    apply([](C x) { return x * normal_share(x); });
  }
}

// Multiplies gradients by the derivative of the activation at `from`.
template <typename T, int Count, typename C>
__device__ __forceinline__ void differentiate_activation(C (&grads)[Count], const C (&from)[Count],
                                                         Activation activation) {
  const auto apply = [&](auto formula) {
#pragma unroll
    for (int i = 0; i < Count; ++i) grads[i] = formula(grads[i], from[i]);
  };
  if (activation == Activation::kRelu) {
    apply([](C grad, C x) { return x <= C(0) ? C(0) : grad; });
  } else if (activation == Activation::kSilu) {
    apply([](C grad, C x) { return grad * silu_derivative<T>(x); });
  } else if (activation == Activation::kGelu) {
    apply([](C grad, C x) { return grad * gelu_derivative(x); });
  }
}

}  // namespace gpuopt
