// Reducers: what a reduction computes, as a struct over the type V that partial results are kept
// in.
//
//   template <typename V> struct Sum {
//     using Value = V;
//     __device__ V identity() const;           // combine(identity(), a) == a
//     __device__ V combine(V a, V b) const;    // associative but for rounding, commutative
//     __device__ V finish(V a) const;          // once per output
//   };
#pragma once

#include "common/types.cuh"

namespace gpuopt::reduce {

// The real type of a value's parts.
template <typename V>
struct RealOf {
  using type = V;
};
template <typename T>
struct RealOf<Complex<T>> {
  using type = T;
};

// The sum divided by `divisor`: 1 for a sum, the number of values for a mean. Integers ignore it:
// they have no mean.
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

// The largest or smallest value. NaN wins over everything, as in torch.amax.
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
    if constexpr (std::is_same_v<V, float>) {  // PTX ISA, "max": .NaN returns NaN if either is
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
