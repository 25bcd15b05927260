// Shared by the kernels: how values are loaded, scaled, summed and added to self, and where rows
// begin.
#pragma once

#include "common/index.h"
#include "common/index_reader.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"
#include "index_add/index_add_problem.h"

namespace gpuopt::index_add {

// The type of sums of T: f32 for the half types, so that a sum is rounded once.
template <typename T>
using Sum = compute_t<T>;

// The start of a sum: the number that changes no other. This is -0.0, because +0.0 plus -0.0 is
// +0.0.
template <typename S>
constexpr S kNothing = std::is_floating_point_v<S> ? static_cast<S>(-0.0) : S{};

// Adds integers with wrap-around and booleans by logical or.
template <typename S>
__device__ __forceinline__ S plus(S a, S b) {
  if constexpr (std::is_same_v<S, bool>) {
    return a || b;
  } else {
    return a + b;
  }
}

template <typename S>
__device__ __forceinline__ S scaled(S value, S alpha) {
  if constexpr (std::is_same_v<S, bool>) {
    return value && alpha;
  } else {
    return value * alpha;
  }
}

// Returns the part of a sum that T can hold and leaves the rest in `sum`. `more` is set if there is
// a rest. This matters for f16, whose largest value is 65504. A sum may exceed it where the same
// values, added to memory one by one, do not. From 2^25 on, the sum of 512 of the largest values, a
// sum is added as infinity: very many parts take long, and from 2^40 on a float minus 65504 is the
// same float.
template <typename T>
__device__ __forceinline__ Sum<T> take_part(Sum<T>& sum, bool& more) {
  Sum<T> part = sum;
  sum = kNothing<Sum<T>>;
  if constexpr (std::is_same_v<T, __half>) {
    constexpr float kMost = 65504, kInfinite = 1 << 25;
    if (fabsf(part) > kMost && fabsf(part) < kInfinite) {
      sum = part;
      part = copysignf(kMost, part);
      sum -= part;
      more = true;
    }
  }
  return part;
}

template <typename T, int V>
struct alignas(sizeof(Sum<T>) * V < kAccessBytes ? sizeof(Sum<T>) * V : kAccessBytes) Sums {
  Sum<T> values[V];

  __device__ __forceinline__ Sums() {
#pragma unroll
    for (int i = 0; i < V; ++i) values[i] = kNothing<Sum<T>>;
  }

  __device__ __forceinline__ void add(const Vec<T, V>& vec, Sum<T> alpha) {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      values[i] = plus(values[i], scaled(to_compute(vec.values[i]), alpha));
    }
  }

  __device__ __forceinline__ void add(const Sums& other) {
#pragma unroll
    for (int i = 0; i < V; ++i) values[i] = plus(values[i], other.values[i]);
  }

  __device__ __forceinline__ Vec<T, V> rounded() const {
    Vec<T, V> vec;
#pragma unroll
    for (int i = 0; i < V; ++i) vec.values[i] = from_compute<T>(values[i]);
    return vec;
  }

  // Returns the parts of these sums that T can hold. `more` says whether there is a rest.
  __device__ __forceinline__ Vec<T, V> take(bool& more) {
    Vec<T, V> vec;
    more = false;
#pragma unroll
    for (int i = 0; i < V; ++i) vec.values[i] = from_compute<T>(take_part<T>(values[i], more));
    return vec;
  }

  // Returns the values of self plus these sums.
  __device__ __forceinline__ Vec<T, V> added_to(const Vec<T, V>& self) const {
    Vec<T, V> vec;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      vec.values[i] = from_compute<T>(plus(to_compute(self.values[i]), values[i]));
    }
    return vec;
  }
};

// A vector of words, as loaded from memory. Otherwise the compiler splits narrow values right after
// the load, and each needs a register.
template <typename T, int V>
struct RawVec {
  static constexpr int kBytes = sizeof(T) * V;
  std::conditional_t<
      kBytes == 16, uint4,
      std::conditional_t<kBytes == 8, uint2,
                         std::conditional_t<kBytes == 4, uint32_t,
                                            std::conditional_t<kBytes == 2, uint16_t, uint8_t>>>>
      words;

  __device__ __forceinline__ void load(const T* aligned) {
    words = *reinterpret_cast<const decltype(words)*>(aligned);
  }
  __device__ __forceinline__ Vec<T, V> values() const {
    Vec<T, V> vec;
    memcpy(&vec, &words, sizeof(vec));
    return vec;
  }
};

// Adds to shared memory. All threads of a block may call it, in any order.
template <typename S>
__device__ __forceinline__ void add_in_shared(S* shared, S value) {
  if constexpr (std::is_same_v<S, bool>) {
    if (value) *shared = true;
  } else if constexpr (std::is_same_v<S, uint64_t>) {
    atomicAdd(reinterpret_cast<unsigned long long*>(shared),
              static_cast<unsigned long long>(value));
  } else {
    atomicAdd(shared, value);
  }
}

// Loads a value that another block has stored. It bypasses the L1 cache, which may have an older
// value.
template <typename S>
__device__ __forceinline__ S load_from_l2(const S* address) {
  using Word = std::conditional_t<sizeof(S) % 16 == 0, uint4,
                                  std::conditional_t<sizeof(S) % 4 == 0, uint32_t, uint8_t>>;
  constexpr int kWords = sizeof(S) / sizeof(Word);
  Word words[kWords];
#pragma unroll
  for (int i = 0; i < kWords; ++i) words[i] = __ldcg(reinterpret_cast<const Word*>(address) + i);
  S value;
  memcpy(&value, words, sizeof(S));
  return value;
}

struct Offsets {
  int64_t self = 0;
  int64_t source = 0;
};

__device__ __forceinline__ Offsets outer_offsets(const OuterDims& dims, uint32_t outer) {
  Offsets offsets;
#pragma unroll
  for (int d = 0; d < kMaxOuterDims; ++d) {
    if (d >= dims.count) break;
    const uint32_t i = d + 1 < dims.count ? dims.sizes[d].divmod(outer) : outer;
    offsets.self += i * dims.self_strides[d];
    offsets.source += i * dims.source_strides[d];
  }
  return offsets;
}

}  // namespace gpuopt::index_add
