// Operators of scans. An operator is a struct that says how two values combine.
//
//   template <typename V> struct Sum {
//     using Value = V;    // of a thread, a warp and a tile
//     using Carry = ...;  // of all tiles before this one: as wide as Value, or wider
//     __device__ V identity() const;                        // combine(identity(), a) == a
//     __device__ V combine(V before, V after) const;        // associative except for rounding
//     __device__ Carry carry(Carry before, Carry after) const;  // the same for carries
//     __device__ Carry widen(V a) const;
//     __device__ V narrow(Carry a) const;
//   };
//
// Values are combined in their order, so an operator need not be commutative.
#pragma once

#include <type_traits>

#include "common/types.cuh"

namespace gpuopt::scan {

template <typename V>
struct CarryOf {
  using type = V;
};
template <>
struct CarryOf<float> {
  using type = double;
};
template <>
struct CarryOf<Complex<float>> {
  using type = Complex<double>;
};

// Sums. Tiles of float32 carry their sums in float64: the error of a long scan would grow with the
// number of tiles otherwise.
template <typename V>
struct Sum {
  using Value = V;
  using Carry = typename CarryOf<V>::type;

  __device__ V identity() const { return V{}; }
  __device__ V combine(V before, V after) const { return before + after; }
  __device__ Carry widen(V a) const {
    if constexpr (kCategory<V> == Category::kComplex) {
      return {a.re, a.im};
    } else {
      return a;
    }
  }
  __device__ V narrow(Carry a) const {
    if constexpr (std::is_same_v<V, Carry>) {
      return a;
    } else if constexpr (kCategory<V> == Category::kComplex) {
      return {static_cast<decltype(V::re)>(a.re), static_cast<decltype(V::re)>(a.im)};
    } else {
      return static_cast<V>(a);
    }
  }
  __device__ Carry carry(Carry before, Carry after) const { return before + after; }
};

}  // namespace gpuopt::scan
