// Packs: N values moved between memory and registers as one access of up to 16 bytes.
#pragma once

#include <cstdint>

namespace gpuopt {

// The widest access a thread can make (ld.global.v4.b32; PTX ISA, "ld").
constexpr int kPackBytes = 16;

template <typename T, int N>
struct alignas(sizeof(T) * N) Pack {
  T values[N];
};

// Values of T in a 16-byte pack.
template <typename T>
constexpr int kPackSize = kPackBytes / static_cast<int>(sizeof(T));

template <typename T, int N>
__device__ __forceinline__ Pack<T, N> load_pack(const T* aligned) {
  return *reinterpret_cast<const Pack<T, N>*>(aligned);
}

template <typename T, int N>
__device__ __forceinline__ void store_pack(T* aligned, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(aligned) = pack;
}

// A 16-byte pack at any element's address: the two aligned packs that hold it, shifted together.
// `available` says how many values the caller may read from `address` on (at least a pack): where
// the second aligned pack would reach past them, the values are read one by one.
template <typename T>
__device__ __forceinline__ Pack<T, kPackSize<T>> load_pack_unaligned(const T* address,
                                                                     uint32_t available) {
  constexpr int N = kPackSize<T>;
  union Raw {
    uint4 words;
    Pack<T, N> pack;
    __device__ Raw() : words{} {}
  } raw;
  const auto bits = reinterpret_cast<uintptr_t>(address);
  const auto* block = reinterpret_cast<const uint4*>(bits & ~uintptr_t{kPackBytes - 1});
  const uint32_t shift = bits & (kPackBytes - 1);
  if (shift != 0 && available < 2 * N) {
#pragma unroll
    for (int i = 0; i < N; ++i) raw.pack.values[i] = address[i];
    return raw.pack;
  }
  const uint4 low = block[0];
  if (shift == 0) {
    raw.words = low;
    return raw.pack;
  }
  const uint4 high = block[1];
  // Drop shift / 4 whole words, then the bytes left over.
  const bool by_two = shift & 8;
  const uint32_t a0 = by_two ? low.z : low.x, a1 = by_two ? low.w : low.y;
  const uint32_t a2 = by_two ? high.x : low.z, a3 = by_two ? high.y : low.w;
  const uint32_t a4 = by_two ? high.z : high.x, a5 = by_two ? high.w : high.y;
  const bool by_one = shift & 4;
  const uint32_t b0 = by_one ? a1 : a0, b1 = by_one ? a2 : a1, b2 = by_one ? a3 : a2;
  const uint32_t b3 = by_one ? a4 : a3, b4 = by_one ? a5 : a4;
  const uint32_t left_over = 8 * (shift & 3);
  raw.words.x = __funnelshift_r(b0, b1, left_over);
  raw.words.y = __funnelshift_r(b1, b2, left_over);
  raw.words.z = __funnelshift_r(b2, b3, left_over);
  raw.words.w = __funnelshift_r(b3, b4, left_over);
  return raw.pack;
}

}  // namespace gpuopt
