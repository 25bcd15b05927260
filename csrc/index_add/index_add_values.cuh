// What the kernels share: how values are read, scaled, summed and added to self, and where rows
// begin.
#pragma once

#include <cassert>

#include "common/index.h"
#include "common/types.cuh"
#include "common/vec.cuh"
#include "index_add/index_add_problem.h"

namespace gpuopt::index_add {

// What a type is summed in: f32 for the half types, so that a sum is rounded once.
template <typename T>
using Sum = compute_t<T>;

// What a sum starts from: the one number that changes no other. +0.0 would make a +0.0 of -0.0.
template <typename S>
constexpr S kNothing = std::is_floating_point_v<S> ? static_cast<S>(-0.0) : S{};

// Sums of values are any of them for booleans, and wrap for integers.
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

// What T holds of a sum, and the rest. f16 ends at 65504, where the same values added to memory one
// by one may not pass it. From 2^25 on, as 512 of the largest values make, it is added as infinity:
// very many parts take long, and from 2^40 on a float less 65504 is the same float.
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

  // What T holds of these sums; there is `more` of them than that.
  __device__ __forceinline__ Vec<T, V> take(bool& more) {
    Vec<T, V> vec;
    more = false;
#pragma unroll
    for (int i = 0; i < V; ++i) vec.values[i] = from_compute<T>(take_part<T>(values[i], more));
    return vec;
  }

  // What is in self already, and these sums.
  __device__ __forceinline__ Vec<T, V> added_to(const Vec<T, V>& self) const {
    Vec<T, V> vec;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      vec.values[i] = from_compute<T>(plus(to_compute(self.values[i]), values[i]));
    }
    return vec;
  }
};

// A vector as it comes from memory. The compiler would take narrow values apart as soon as they are
// loaded, and so give each a register.
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

// Of any of a block's threads, in any order.
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

// What other blocks have stored: past the L1 cache, which may hold what was there before.
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

// Where the caller's index points to.
struct Index {
  const void* values = nullptr;
  bool is_long = true;  // int64, else int32
  int64_t stride = 0;
  int64_t bins = 0;

  // Of the first `count` of N entries. An assertion after each load would make each wait for the
  // one before, so they are loaded together; check() them before use.
  template <int N>
  __device__ __forceinline__ void load(const uint32_t (&entries)[N], int count,
                                       int64_t (&bins)[N]) const {
    const auto fill = [&](const auto* from) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if (i < count) bins[i] = from[entries[i] * stride];
      }
    };
    if (is_long) {
      fill(static_cast<const int64_t*>(values));
    } else {
      fill(static_cast<const int32_t*>(values));
    }
  }

  // Anything out of range ends the kernel, as in ATen.
  template <int N>
  __device__ __forceinline__ void check(int count, const int64_t (&loaded)[N]) const {
    bool in_range = true;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      in_range = in_range && (i >= count || (loaded[i] >= 0 && loaded[i] < bins));
    }
    assert(in_range && "index_add: index out of bounds");
  }
};

struct OuterDims {
  int count = 0;
  FastDiv sizes[kMaxOuterDims];  // the last is not divided by
  int64_t self_strides[kMaxOuterDims] = {};
  int64_t source_strides[kMaxOuterDims] = {};
};

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
