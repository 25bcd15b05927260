// Device code shared by conv1d kernels: arithmetic, and rows read and written as 16-byte vectors.
#pragma once

#include <cuda_runtime_api.h>

#include <cstring>
#include <type_traits>

#include "common/activation.cuh"
#include "common/async.cuh"
#include "common/index.h"
#include "common/launch.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"
#include "conv1d/geometry.h"

namespace gpuopt::conv1d {

// Loads a vector, or zeros if not `valid`, without a branch: several loads are in flight at once.
template <typename T, int N>
__device__ __forceinline__ Vec<T, N> load_vec_if(const T* aligned, bool valid) {
  Vec<T, N> vec;
  if constexpr (sizeof(vec) == kVecBytes) {
    uint4 words = load_16_bytes(aligned, valid, /*once=*/false);
    if (!valid) words = uint4{};
    memcpy(&vec, &words, sizeof(vec));
  } else {
    using Word = std::conditional_t<sizeof(vec) == 2, uint16_t,
                                    std::conditional_t<sizeof(vec) == 4, uint32_t, uint64_t>>;
    const Word word = load_word<Word>(aligned, valid);
    memcpy(&vec, &word, sizeof(vec));
  }
  return vec;
}

template <typename T>
__device__ __forceinline__ T load_if(const T* address, bool valid) {
  return load_vec_if<T, 1>(address, valid).values[0];
}

// The bias of a channel, or 0 if there is none.
template <typename T, typename Args>
__device__ __forceinline__ compute_t<T> load_bias(const Args& args, int64_t channel) {
  if (args.bias == nullptr) return 0;
  return to_compute(static_cast<const T*>(args.bias)[channel * args.bias_stride]);
}

// Adds the bias, if there is one, and applies the activation.
template <typename T, int Count, typename Args>
__device__ __forceinline__ void finish(compute_t<T> (&sums)[Count], const Args& args,
                                       compute_t<T> bias) {
  if (args.bias != nullptr) {
#pragma unroll
    for (int i = 0; i < Count; ++i) sums[i] += bias;
  }
  activate<T>(sums, args.activation);
}

// Values between the aligned vector below an address and the address.
template <typename T>
__device__ __forceinline__ int32_t offset_in_vec(const T* address) {
  return static_cast<int32_t>(reinterpret_cast<uintptr_t>(address) / sizeof(T) % kVecSize<T>);
}

// Rows of a signal that are read as aligned vectors. A vector may reach into other rows, whose
// values are replaced by 0. No vector reaches out of the signal's memory.
template <typename T>
struct Rows {
  const char* first_vec;  // first and last whole vector of the signal
  const char* last_vec;

  // Loads the vector at position `begin`, which may reach out of the row. Values outside are 0.
  __device__ __forceinline__ uint4 load_edge(const T* row, int32_t begin, int32_t size) const {
    constexpr int N = kVecSize<T>;
    uint4 words = {};
    if (begin <= -N || begin >= size) return words;
    const auto* address = reinterpret_cast<const char*>(row + begin);
    if (address >= first_vec && address <= last_vec) {
      words = *reinterpret_cast<const uint4*>(address);
      auto vec = vec_of<T>(words);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const bool valid = static_cast<uint32_t>(begin + i) < static_cast<uint32_t>(size);
        if (!valid) vec.values[i] = T{};
      }
      memcpy(&words, &vec, sizeof(words));
      return words;
    }
    // Rare: one value at a time, with all loads in flight at once.
    Vec<T, N> vec;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const bool valid = static_cast<uint32_t>(begin + i) < static_cast<uint32_t>(size);
      vec.values[i] = load_if(row + begin + i, valid);
    }
    memcpy(&words, &vec, sizeof(words));
    return words;
  }

  // Of `vecs` vectors from `begin` on, [low, high) lie entirely within the row.
  struct Whole {
    int32_t low, high;
  };
  __device__ __forceinline__ static Whole whole_vecs(int32_t begin, int32_t size, int32_t vecs) {
    constexpr int N = kVecSize<T>;
    // Unsigned division saves the instructions that round towards 0.
    const auto vecs_in = [](int32_t values) {
      return static_cast<int32_t>(static_cast<uint32_t>(max(values, 0)) / N);
    };
    const int32_t low = min(vecs_in(N - 1 - begin), vecs);
    return {low, max(min(vecs_in(size - begin), vecs), low)};
  }

  // Calls store(q, vec) for each vector outside [low, high). Values outside the row are 0. `lanes`
  // threads share the vectors.
  template <typename Store>
  __device__ __forceinline__ void fill_edges(const Whole& whole, const T* row, int32_t begin,
                                             int32_t size, int32_t vecs, int32_t lane,
                                             int32_t lanes, const Store& store) const {
    if (whole.low == 0 && whole.high == vecs) return;
    const int32_t edges = vecs - whole.high + whole.low;
#pragma unroll 1
    for (int32_t i = lane; i < edges; i += lanes) {
      const int32_t q = i < whole.low ? i : whole.high - whole.low + i;
      store(q, load_edge(row, begin + q * kVecSize<T>, size));
    }
  }

  // Starts copying `vecs` vectors to shared memory. wait_for_copies() waits for them.
  __device__ __forceinline__ void copy_vecs(uint4* shared, const T* row, int32_t begin,
                                            int32_t size, int32_t vecs, int32_t lane,
                                            int32_t lanes) const {
    const Whole whole = whole_vecs(begin, size, vecs);
    const auto* from = reinterpret_cast<const uint4*>(row + begin);
#pragma unroll 4
    for (int32_t q = whole.low + lane; q < whole.high; q += lanes) {
      copy_async<uint4, 1>(shared + q, from + q);
    }
    fill_edges(whole, row, begin, size, vecs, lane, lanes,
               [&](int32_t q, const uint4& vec) { shared[q] = vec; });
  }
};

template <int Count>
__device__ __forceinline__ void read_vecs(uint4 (&vecs)[Count], const uint4* shared) {
#pragma unroll
  for (int i = 0; i < Count; ++i) vecs[i] = shared[i];
}

template <typename T, int N>
__device__ __forceinline__ void widen(compute_t<T>* to, const Vec<T, N>& vec) {
  if constexpr (std::is_same_v<T, __nv_bfloat16> && N % 2 == 0) {
    // A bf16 in the upper half of a word is an f32 once the lower half is 0.
    uint32_t words[N / 2];
    memcpy(words, &vec, sizeof(words));
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      const uint32_t low = words[i] << 16, high = words[i] & 0xffff0000u;
      memcpy(to + 2 * i, &low, sizeof(low));
      memcpy(to + 2 * i + 1, &high, sizeof(high));
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = to_compute(vec.values[i]);
  }
}

// shift_vecs() for values of 4 or 8 bytes.
template <typename T>
__device__ __forceinline__ Vec<T, kVecSize<T>> shift_words(const uint4& low, const uint4& high,
                                                           uint32_t shift) {
  const bool by_two = shift & 8;
  const uint32_t a0 = by_two ? low.z : low.x, a1 = by_two ? low.w : low.y;
  const uint32_t a2 = by_two ? high.x : low.z, a3 = by_two ? high.y : low.w;
  if constexpr (sizeof(T) == 8) return vec_of<T>(uint4{a0, a1, a2, a3});
  const uint32_t a4 = by_two ? high.z : high.x;
  const bool by_one = shift & 4;
  return vec_of<T>(uint4{by_one ? a1 : a0, by_one ? a2 : a1, by_one ? a3 : a2, by_one ? a4 : a3});
}

// Converts Count vectors of values that begin `shift` bytes into the first of Count + 1 vectors.
template <typename T, int Count>
__device__ __forceinline__ void shift_in(compute_t<T>* to, const uint4 (&vecs)[Count + 1],
                                         uint32_t shift) {
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    if constexpr (sizeof(T) >= 4) {
      widen<T>(to + i * kVecSize<T>, shift_words<T>(vecs[i], vecs[i + 1], shift));
    } else {
      widen<T>(to + i * kVecSize<T>, shift_vecs<T>(vecs[i], vecs[i + 1], shift));
    }
  }
}

template <typename T, int N>
__device__ __forceinline__ Vec<T, N> narrow(const compute_t<T>* values) {
  Vec<T, N> vec;
#pragma unroll
  for (int i = 0; i < N; ++i) vec.values[i] = from_compute<T>(values[i]);
  return vec;
}

// Stores a vector at the aligned position `begin` of a row. Positions outside [0, size) are
// skipped.
template <typename T, int N>
__device__ __forceinline__ void store_edge(T* row, int32_t begin, int32_t size,
                                           const Vec<T, N>& vec) {
  if (begin >= 0 && begin <= size - N) {
    store_whole(row + begin, vec);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (static_cast<uint32_t>(begin + i) < static_cast<uint32_t>(size)) {
        row[begin + i] = vec.values[i];
      }
    }
  }
}

// The same for several vectors.
template <typename T, int Count>
__device__ __forceinline__ void store_values(T* row, int32_t begin, int32_t size,
                                             const compute_t<T> (&values)[Count]) {
  constexpr int N = kVecSize<T>;
  if (begin >= 0 && begin <= size - Count) {
#pragma unroll
    for (int i = 0; i < Count; i += N) {
      store_whole(row + begin + i, narrow<T, N>(values + i));
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    if (static_cast<uint32_t>(begin + i) < static_cast<uint32_t>(size)) {
      row[begin + i] = from_compute<T>(values[i]);
    }
  }
}

}  // namespace gpuopt::conv1d
