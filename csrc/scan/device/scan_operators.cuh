// Operators of scans. An operator is a struct that says how two values combine.
//
//   template <typename V> struct Sum {
//     static constexpr int kInputs = 1;  // tensors that are read: 1 or 2
//     static constexpr bool kCommutes;   // combine(a, b) equals combine(b, a)
//     // Whether the results of a unit are found in turn: each is the combination of the previous
//     // result and a value. Otherwise a unit's values combine with each other first, and then with
//     // what comes before the unit: the chains are shorter, and so is the error of sums.
//     static constexpr bool kInTurn;
//     using Stored = V;   // a value of an input, and a result, when it is in a register
//     using Input = V;    // the values of all inputs at one position
//     using Value = V;    // of a thread, a warp and a tile
//     using Carry = ...;  // of all tiles before this one: as wide as Value, or wider
//     __device__ V value(Input in, bool is_first) const;    // is_first: the first of its row
//     __device__ V identity() const;                        // combine(identity(), a) == a
//     __device__ V combine(V before, V after) const;        // associative except for rounding
//     __device__ Carry carry(Carry before, Carry after) const;  // the same for carries
//     __device__ Carry widen(V a) const;
//     __device__ V narrow(Carry a) const;
//     // The result of a position. `before` excludes the position's own value, `after` includes it.
//     __device__ Stored result(V before, V after, Input in, bool exclusive) const;
//   };
//
// Values are combined in their order, so an operator need not be commutative. An operator of two
// inputs has two more members:
//
//     __device__ Input pair(Stored second, Stored in) const;   // of Problem::second and in
//     // The first input of a row whose scan starts at `initial`.
//     __device__ Input start(Input in, Stored initial) const;
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
  static constexpr int kInputs = 1;
  static constexpr bool kCommutes = true;
  static constexpr bool kInTurn = false;
  using Stored = V;
  using Input = V;
  using Value = V;
  using Carry = typename CarryOf<V>::type;

  __device__ V value(V in, bool) const { return in; }
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
  __device__ V result(V before, V after, V, bool exclusive) const {
    return exclusive ? before : after;
  }
};

// The function h -> a h + b.
template <typename S>
struct Affine {
  S a, b;
};

template <typename S>
__device__ __forceinline__ S one() {
  if constexpr (kCategory<S> == Category::kComplex) {
    return {1, 0};
  } else {
    return 1;
  }
}

// Linear recurrences: h becomes a h + b at each position. The values are affine functions, and the
// combination of two applies one after the other. The first value of a row is a constant function,
// since it knows what comes before it. So what follows never depends on the functions before a row.
//
// If kShifted, each position adds b first: its result is h + b, and the next position gets
// a (h + b). This is the transposed recurrence of the other direction, so gradients need no shifted
// copy of a.
template <typename S, bool kShifted>
struct LinearRecurrence {
  static constexpr int kInputs = 2;
  static constexpr bool kCommutes = false;
  static constexpr bool kInTurn = true;  // one multiply-add, not three operations
  using Stored = S;
  using Input = Affine<S>;
  using Value = Affine<S>;
  using Carry = Affine<typename CarryOf<S>::type>;

  __device__ Input pair(S second, S in) const { return {second, in}; }
  __device__ Input start(Input in, S initial) const {
    return {in.a, kShifted ? in.b + initial : multiply_add(in.a, initial, in.b)};
  }
  __device__ Value value(Input in, bool is_first) const {
    return {is_first ? S{} : in.a, kShifted ? in.a * in.b : in.b};
  }
  __device__ Value identity() const { return {one<S>(), S{}}; }
  __device__ Value combine(Value before, Value after) const { return in_turn(before, after); }
  __device__ Carry carry(Carry before, Carry after) const { return in_turn(before, after); }
  __device__ Carry widen(Value x) const { return {Sum<S>{}.widen(x.a), Sum<S>{}.widen(x.b)}; }
  __device__ Value narrow(Carry x) const { return {Sum<S>{}.narrow(x.a), Sum<S>{}.narrow(x.b)}; }
  __device__ S result(Value before, Value after, Input in, bool) const {
    return kShifted ? before.b + in.b : after.b;
  }

 private:
  template <typename T>
  __device__ static Affine<T> in_turn(Affine<T> before, Affine<T> after) {
    return {after.a * before.a, multiply_add(after.a, before.b, after.b)};
  }
};

}  // namespace gpuopt::scan
