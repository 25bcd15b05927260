// Reducers. A reducer is a struct that says what a reduction computes. V is the type of partial
// results.
//
//   template <typename V> struct Sum {
//     using Value = V;
//     __device__ V identity() const;           // combine(identity(), a) == a
//     __device__ V combine(V a, V b) const;    // commutative; associative except for rounding
//     __device__ V finish(V a) const;          // called once per output
//   };
#pragma once

#include "common/types.cuh"

namespace gpuopt::reduce {

// The type of the real part of V.
template <typename V>
struct RealOf {
  using type = V;
};
template <typename T>
struct RealOf<Complex<T>> {
  using type = T;
};

// The sum of the values, divided by `divisor`. A sum has divisor 1, a mean the number of values.
// Integers ignore the divisor, since they have no mean.
template <typename V>
struct Sum {
  using Value = V;
  using Real = typename RealOf<V>::type;
  Real divisor;
  bool divides;

  __host__ explicit Sum(double by) : divisor(static_cast<Real>(by)), divides(by != 1) {}
  __device__ V identity() const { return V{}; }
  __device__ V combine(V a, V b) const { return a + b; }
  __device__ V finish(V a) const {
    if (kCategory<V> <= Category::kInteger || !divides) return a;
    if constexpr (kCategory<V> == Category::kComplex) {
      return {a.re / divisor, a.im / divisor};
    } else {
      return a / divisor;
    }
  }
};

// The largest or smallest value. If any value is NaN, so is the result, as in torch.amax.
template <typename V, bool kLargest>
struct Extremum {
  using Value = V;

  __device__ V identity() const {
    if constexpr (std::is_same_v<V, float>) {
      return kLargest ? -INFINITY : INFINITY;
    } else if constexpr (std::is_same_v<V, double>) {
      return kLargest ? -static_cast<double>(INFINITY) : static_cast<double>(INFINITY);
    } else {
      constexpr V kLowest = V{1} << (8 * sizeof(V) - 1);
      return kLargest ? kLowest : static_cast<V>(~kLowest);
    }
  }
  __device__ V combine(V a, V b) const {
#if __CUDA_ARCH__ >= 800
    if constexpr (std::is_same_v<V, float>) {  // .NaN: NaN if either operand is (PTX ISA, "max")
      float c;
      if constexpr (kLargest) {
        asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
      } else {
        asm("min.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
      }
      return c;
    }
#endif
    if constexpr (std::is_integral_v<V>) {
      return (kLargest ? a > b : a < b) ? a : b;
    } else {
      return (a != a || (kLargest ? a > b : a < b)) ? a : b;
    }
  }
  __device__ V finish(V a) const { return a; }
};

template <typename V>
using Max = Extremum<V, true>;
template <typename V>
using Min = Extremum<V, false>;

}  // namespace gpuopt::reduce
