// Vectors: N values moved between memory and registers as one access of up to 16 bytes.
#pragma once

#include <cstdint>
#include <cstring>

#include "common/index.h"

namespace gpuopt {

constexpr int kVecBytes = kAccessBytes;  // its name in conv1d's kernels

template <typename T, int N>
struct alignas(sizeof(T) * N) Vec {
  T values[N];
};

// Values of T in a 16-byte vector.
template <typename T>
constexpr int kVecSize = kAccessBytes / static_cast<int>(sizeof(T));

template <typename T, int N>
__device__ __forceinline__ Vec<T, N> load_vec(const T* aligned) {
  return *reinterpret_cast<const Vec<T, N>*>(aligned);
}

template <typename T, int N>
__device__ __forceinline__ void store_vec(T* aligned, const Vec<T, N>& vec) {
  *reinterpret_cast<Vec<T, N>*>(aligned) = vec;
}

// Stores a vector of 4, 8 or 16 bytes by one instruction. If another branch stores the values one
// by one, the compiler may merge both branches and split an ordinary vector store (2^24 values of
// bf16: twice the time).
template <typename T, int N>
__device__ __forceinline__ void store_whole(T* aligned, const Vec<T, N>& vec) {
  static_assert(sizeof(vec) == 4 || sizeof(vec) == 8 || sizeof(vec) == 16);
#if defined(__CUDA_ARCH__)
  uint32_t words[sizeof(vec) / 4];
  memcpy(words, &vec, sizeof(vec));
  if constexpr (sizeof(vec) == 16) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(aligned), "r"(words[0]),
                 "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
  } else if constexpr (sizeof(vec) == 8) {
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(aligned), "r"(words[0]), "r"(words[1])
                 : "memory");
  } else {
    asm volatile("st.global.u32 [%0], %1;" ::"l"(aligned), "r"(words[0]) : "memory");
  }
#else
  store_vec(aligned, vec);
#endif
}

// Loads 16 aligned bytes of shared memory by one instruction. If some of the bytes are unused, the
// compiler may split an ordinary load into several with bank conflicts (conv1d of 2^24 values with
// 31 taps: 92 us, and 58 us with this function).
__device__ __forceinline__ uint4 load_shared_whole(const uint4* shared) {
#if defined(__CUDA_ARCH__)
  uint4 words;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(shared)))
               : "memory");
  return words;
#else
  return *shared;
#endif
}

// Loads 16 aligned bytes if `valid`; otherwise the result is undefined. There is no branch, so
// several such loads are in flight at once. `once` marks data that is not read again: it is evicted
// from the caches first (PTX ISA, "Cache operators").
__device__ __forceinline__ uint4 load_16_bytes(const void* aligned, bool valid, bool once) {
  uint4 words;
#if defined(__CUDA_ARCH__)
  asm volatile(
      "{\n"
      ".reg .pred valid, streaming, plain;\n"
      "setp.ne.u32 valid, %5, 0;\n"
      "setp.ne.and.u32 streaming, %6, 0, valid;\n"
      "setp.eq.and.u32 plain, %6, 0, valid;\n"
      "@streaming ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];\n"
      "@plain ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\n"
      "}"
      : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
      : "l"(aligned), "r"(static_cast<uint32_t>(valid)), "r"(static_cast<uint32_t>(once)));
#else
  if (valid) words = *static_cast<const uint4*>(aligned);
#endif
  return words;
}

// Loads a word of 2, 4, 8 or 16 bytes if `valid`, without a branch; otherwise the result is 0.
template <typename Word>
__device__ __forceinline__ Word load_word(const void* aligned, bool valid) {
  Word word = {};
#if defined(__CUDA_ARCH__)
  const auto predicate = static_cast<uint32_t>(valid);
  if constexpr (sizeof(Word) == 16) {
    asm volatile(
        "{\n.reg .pred valid;\nsetp.ne.u32 valid, %5, 0;\n"
        "@valid ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
        : "+r"(word.x), "+r"(word.y), "+r"(word.z), "+r"(word.w)
        : "l"(aligned), "r"(predicate));
  } else if constexpr (sizeof(Word) == 8) {
    asm volatile(
        "{\n.reg .pred valid;\nsetp.ne.u32 valid, %2, 0;\n"
        "@valid ld.global.b64 %0, [%1];\n}"
        : "+l"(word)
        : "l"(aligned), "r"(predicate));
  } else if constexpr (sizeof(Word) == 4) {
    asm volatile(
        "{\n.reg .pred valid;\nsetp.ne.u32 valid, %2, 0;\n"
        "@valid ld.global.b32 %0, [%1];\n}"
        : "+r"(word)
        : "l"(aligned), "r"(predicate));
  } else {
    static_assert(sizeof(Word) == 2);
    asm volatile(
        "{\n.reg .pred valid;\nsetp.ne.u32 valid, %2, 0;\n"
        "@valid ld.global.b16 %0, [%1];\n}"
        : "+h"(word)
        : "l"(aligned), "r"(predicate));
  }
#else
  if (valid) word = *static_cast<const Word*>(aligned);
#endif
  return word;
}

template <typename T>
__device__ __forceinline__ Vec<T, kVecSize<T>> vec_of(const uint4& words) {
  Vec<T, kVecSize<T>> vec;
  memcpy(&vec, &words, sizeof(vec));
  return vec;
}

// The 16 bytes that begin at byte `shift` (0 to 15) of two neighbouring aligned vectors.
template <typename T>
__device__ __forceinline__ Vec<T, kVecSize<T>> shift_vecs(const uint4& low, const uint4& high,
                                                          uint32_t shift) {
  // Drop shift / 4 whole words, then the bytes left over.
  const bool by_two = shift & 8;
  const uint32_t a0 = by_two ? low.z : low.x, a1 = by_two ? low.w : low.y;
  const uint32_t a2 = by_two ? high.x : low.z, a3 = by_two ? high.y : low.w;
  const uint32_t a4 = by_two ? high.z : high.x, a5 = by_two ? high.w : high.y;
  const bool by_one = shift & 4;
  const uint32_t b0 = by_one ? a1 : a0, b1 = by_one ? a2 : a1, b2 = by_one ? a3 : a2;
  const uint32_t b3 = by_one ? a4 : a3, b4 = by_one ? a5 : a4;
  const uint32_t left_over = 8 * (shift & 3);
  const uint4 words{__funnelshift_r(b0, b1, left_over), __funnelshift_r(b1, b2, left_over),
                    __funnelshift_r(b2, b3, left_over), __funnelshift_r(b3, b4, left_over)};
  return vec_of<T>(words);
}

// Loads a 16-byte vector at the address of any element, from the two aligned vectors that hold it.
// The caller may read `available` values from `address` on, at least one vector. If the second
// aligned vector reaches beyond them, the values are loaded one by one.
template <typename T>
__device__ __forceinline__ Vec<T, kVecSize<T>> load_vec_unaligned(const T* address,
                                                                  uint32_t available) {
  constexpr int N = kVecSize<T>;
  const auto bits = reinterpret_cast<uintptr_t>(address);
  const auto* block = reinterpret_cast<const uint4*>(bits & ~uintptr_t{kAccessBytes - 1});
  const uint32_t shift = bits & (kAccessBytes - 1);
  if (shift == 0) return load_vec<T, N>(address);
  if (available < 2 * N) {
    Vec<T, N> vec;
#pragma unroll
    for (int i = 0; i < N; ++i) vec.values[i] = address[i];
    return vec;
  }
  return shift_vecs<T>(block[0], block[1], shift);
}

}  // namespace gpuopt
