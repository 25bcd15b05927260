// Atomic additions to global memory without a result (PTX ISA, "red"): single elements of every
// type, aligned pairs of halves, whole 16-byte vectors, and eight halves anywhere. All are relaxed,
// at device scope, and the thread does not wait for them. The order of several additions is
// undefined.
//
// The fast half atomic add: hardware adds fp16 and bf16 in pairs only (red.add.noftz.f16x2 from
// sm_60 on, .bf16x2 from sm_90 on). A single half needs a compare-and-swap loop. So a half is added
// as one side of the aligned 4-byte pair that holds it. The other side is -0.0, the only number
// that changes no other: +0.0 would change a -0.0 to +0.0. At the ends of an array the pair may
// reach outside; only there the loop remains.
#pragma once

#include "common/any_vec.cuh"
#include "common/types.cuh"

namespace gpuopt {

namespace detail {

// Atomically replaces the aligned word of 2, 4 or 8 bytes by change(word), with compare-and-swap.
template <typename Word, typename Change>
__device__ __forceinline__ void atomic_change(Word* word, Change change) {
  Word seen = *const_cast<volatile Word*>(word);
  for (Word before = seen;; before = seen) {
    seen = atomicCAS(word, before, change(before));
    if (seen == before) return;
  }
}

template <typename T>
__device__ __forceinline__ uint16_t bits_of(T half) {
  uint16_t bits;
  memcpy(&bits, &half, sizeof(bits));
  return bits;
}

template <typename T>
__device__ __forceinline__ T from_bits(uint16_t bits) {
  T half;
  memcpy(&half, &bits, sizeof(half));
  return half;
}

}  // namespace detail

template <typename T>
constexpr bool kIsHalf = std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>;

// Adds two halves to the pair at `pair`, a multiple of 4 bytes. The low bits are the first half.
template <typename T>
__device__ __forceinline__ void atomic_add_pair(T* pair, uint32_t halves) {
  static_assert(kIsHalf<T>);
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<T, __half>) {
    asm volatile("red.relaxed.gpu.global.add.noftz.f16x2 [%0], %1;" ::"l"(pair), "r"(halves)
                 : "memory");
    return;
  }
#if __CUDA_ARCH__ >= 900
  asm volatile("red.relaxed.gpu.global.add.noftz.bf16x2 [%0], %1;" ::"l"(pair), "r"(halves)
               : "memory");
  return;
#endif
#endif
  detail::atomic_change(reinterpret_cast<uint32_t*>(pair), [halves](uint32_t word) {
    const auto add = [](uint32_t a, uint32_t b) {
      const float sum = to_compute(detail::from_bits<T>(static_cast<uint16_t>(a))) +
                        to_compute(detail::from_bits<T>(static_cast<uint16_t>(b)));
      return uint32_t{detail::bits_of(from_compute<T>(sum))};
    };
    return add(word, halves) | add(word >> 16, halves >> 16) << 16;
  });
}

// Adds `value` to the element at `address`, of any type. [first, end) is the array that holds it.
// Memory outside of the array keeps its values, but the neighbour of a 1-byte integer may be
// rewritten with the value that it has.
template <typename T>
__device__ __forceinline__ void atomic_add(T* address, T value, const T* first, const T* end) {
  if constexpr (std::is_same_v<T, Bool>) {  // logical or: it is enough to store true
    if (value.byte != 0) address->byte = 1;
  } else if constexpr (kIsHalf<T>) {
    constexpr uint32_t kMinusZero = 0x8000;
    const uint32_t bits = detail::bits_of(value);
    const bool upper = reinterpret_cast<uintptr_t>(address) & 2;
    if (upper ? address > first : address + 1 < end) {
      atomic_add_pair(upper ? address - 1 : address,
                      upper ? bits << 16 | kMinusZero : kMinusZero << 16 | bits);
      return;
    }
    detail::atomic_change(reinterpret_cast<unsigned short*>(address), [value](unsigned short old) {
      const float sum = to_compute(detail::from_bits<T>(old)) + to_compute(value);
      return static_cast<unsigned short>(detail::bits_of(from_compute<T>(sum)));
    });
  } else if constexpr (sizeof(T) == 1) {
    // Compare-and-swap exchanges an aligned pair of bytes. The other byte may lie outside the
    // array.
    const bool upper = reinterpret_cast<uintptr_t>(address) & 1;
    auto* pair = reinterpret_cast<unsigned short*>(address - upper);
    detail::atomic_change(pair, [upper, value](unsigned short old) {
      const uint32_t low = old & 0xff, high = old >> 8;
      return static_cast<unsigned short>(upper ? (high + value) << 8 | low
                                               : high << 8 | ((low + value) & 0xff));
    });
  } else if constexpr (sizeof(T) == 2) {
    detail::atomic_change(reinterpret_cast<unsigned short*>(address), [value](unsigned short old) {
      return static_cast<unsigned short>(old + value);
    });
  } else if constexpr (std::is_same_v<T, uint64_t>) {
    atomicAdd(reinterpret_cast<unsigned long long*>(address),
              static_cast<unsigned long long>(value));
  } else {
    atomicAdd(address, value);
  }
}

// Adds a vector at an aligned address. On sm_90, 16 bytes of f32, fp16 or bf16 take one instruction
// (red.add.v4), and 32 bytes two. Other vectors are added as pairs of halves, as 4-byte words of
// narrow integers, or element by element.
template <typename T, int N>
__device__ __forceinline__ void atomic_add_vec(T* aligned, const Vec<T, N>& vec) {
#if __CUDA_ARCH__ >= 900
  constexpr bool kVector =
      sizeof(T) * N == kAccessBytes && (kIsHalf<T> || std::is_same_v<T, float>);
#else
  constexpr bool kVector = false;
#endif
  if constexpr (kVector) {
    uint32_t words[4];
    memcpy(words, &vec, sizeof(words));
    if constexpr (std::is_same_v<T, __half>) {
      asm volatile(
          "red.relaxed.gpu.global.add.noftz.v4.f16x2 [%0], {%1, %2, %3, %4};" ::"l"(aligned),
          "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
          : "memory");
    } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      asm volatile(
          "red.relaxed.gpu.global.add.noftz.v4.bf16x2 [%0], {%1, %2, %3, %4};" ::"l"(aligned),
          "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
          : "memory");
    } else {
      asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(aligned),
                   "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                   : "memory");
    }
  } else if constexpr (sizeof(T) * N == 2 * kAccessBytes) {
    Vec<T, N / 2> half;
#pragma unroll
    for (int from = 0; from < N; from += N / 2) {
#pragma unroll
      for (int i = 0; i < N / 2; ++i) half.values[i] = vec.values[from + i];
      atomic_add_vec(aligned + from, half);
    }
  } else if constexpr (sizeof(T) < 4 && sizeof(T) * N >= 4 && !std::is_same_v<T, Bool>) {
    constexpr int kWords = sizeof(T) * N / 4;
    uint32_t words[kWords];
    memcpy(words, &vec, sizeof(words));
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      if constexpr (kIsHalf<T>) {
        atomic_add_pair(aligned + 2 * i, words[i]);
      } else {
        const uint32_t addend = words[i];
        detail::atomic_change(reinterpret_cast<uint32_t*>(aligned) + i, [addend](uint32_t word) {
          return sizeof(T) == 2 ? __vadd2(word, addend) : __vadd4(word, addend);
        });
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      atomic_add(aligned + i, vec.values[i], aligned, aligned + N);
    }
  }
}

// Adds the first `count` of eight halves at any address, as the one or two aligned vectors that
// hold them. Their other halves are -0.0. [first, end) is the array.
template <typename T>
__device__ __forceinline__ void atomic_add_anywhere(T* address, const Vec<T, 8>& vec, int count,
                                                    const T* first, const T* end) {
  static_assert(kIsHalf<T>);
  constexpr uint32_t kNothing = 0x80008000;
  const auto bytes = static_cast<int>(2 * count);
  const uint4 nothing{kNothing, kNothing, kNothing, kNothing};
  uint4 words;
  memcpy(&words, &vec, sizeof(words));
  words = join_bytes(words, nothing, bytes);
  const auto shift = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(address) % kAccessBytes);
  const bool reaches_next = static_cast<int>(shift) + bytes > kAccessBytes;
  T* aligned = address - shift / 2;
  if (aligned < first || aligned + (reaches_next ? 16 : 8) > end) {
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      const uint32_t pair = i < 2 ? words.x : i < 4 ? words.y : i < 6 ? words.z : words.w;
      const auto half = static_cast<uint16_t>(pair >> (16 * (i % 2)));
      atomic_add(address + i, detail::from_bits<T>(half), first, end);
    }
    return;
  }
  atomic_add_vec(
      aligned, shift == 0 ? vec_of<T>(words) : shift_vecs<T>(nothing, words, kAccessBytes - shift));
  if (reaches_next)
    atomic_add_vec(aligned + 8, shift_vecs<T>(words, nothing, kAccessBytes - shift));
}

}  // namespace gpuopt
