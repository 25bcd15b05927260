// Exchange between the lanes of a warp.
#pragma once

#include <cstdint>
#include <cstring>

namespace gpuopt {

// The value of lane (own XOR mask), for values of any size that is a multiple of 4 bytes. All lanes
// of the warp take part.
template <typename T>
__device__ __forceinline__ T shuffle_xor(const T& value, int mask) {
  static_assert(sizeof(T) % 4 == 0);
  constexpr int kWords = sizeof(T) / 4;
  uint32_t words[kWords];
  memcpy(words, &value, sizeof(T));
#pragma unroll
  for (int i = 0; i < kWords; ++i) words[i] = __shfl_xor_sync(0xffffffffu, words[i], mask);
  T other;
  memcpy(&other, words, sizeof(T));
  return other;
}

// The value of the lane `distance` below, for values of any size; of the own one where there is none.
// All lanes of the warp take part.
template <typename T>
__device__ __forceinline__ T shuffle_up(const T& value, uint32_t distance) {
  constexpr int kWords = (sizeof(T) + 3) / 4;
  uint32_t words[kWords] = {};
  memcpy(words, &value, sizeof(T));
#pragma unroll
  for (int i = 0; i < kWords; ++i) words[i] = __shfl_up_sync(0xffffffffu, words[i], distance);
  T other;
  memcpy(&other, words, sizeof(T));
  return other;
}

// The sum of the values of the lanes up to and with the own one. All lanes of the warp take part.
__device__ __forceinline__ uint32_t warp_sum_up(uint32_t value) {
#pragma unroll
  for (uint32_t distance = 1; distance < 32; distance *= 2) {
    const uint32_t below = __shfl_up_sync(0xffffffffu, value, distance);
    if (threadIdx.x % 32 >= distance) value += below;
  }
  return value;
}

}  // namespace gpuopt
