// Exchanges between the lanes of a warp.
#pragma once

#include <cstdint>
#include <cstring>

namespace gpuopt {

// The value of the lane whose index is this lane's XOR mask. The size of T is a multiple of 4
// bytes. All lanes of the warp take part: exchanges of parts of a warp run one by one.
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

// The value of lane `lane`. The size of T is a multiple of 4 bytes. All lanes of the warp take
// part.
template <typename T>
__device__ __forceinline__ T shuffle_from(const T& value, int lane) {
  static_assert(sizeof(T) % 4 == 0);
  constexpr int kWords = sizeof(T) / 4;
  uint32_t words[kWords];
  memcpy(words, &value, sizeof(T));
#pragma unroll
  for (int i = 0; i < kWords; ++i) words[i] = __shfl_sync(0xffffffffu, words[i], lane);
  T other;
  memcpy(&other, words, sizeof(T));
  return other;
}

// The value of the next lane; the last lane gets its own. All lanes of the warp take part.
__device__ __forceinline__ uint64_t shuffle_down(uint64_t value) {
  const int next = static_cast<int>(min(threadIdx.x % 32 + 1, 31u));
  const uint32_t low = __shfl_sync(0xffffffffu, static_cast<uint32_t>(value), next);
  const uint32_t high = __shfl_sync(0xffffffffu, static_cast<uint32_t>(value >> 32), next);
  return uint64_t{high} << 32 | low;
}

// A mask of the lanes whose word has the same `bit` as this lane's word. All lanes of the warp take
// part.
__device__ __forceinline__ uint32_t lanes_with_same(uint32_t word, uint32_t bit) {
#if defined(__CUDA_ARCH__)
  // The vote and the complement share one predicate; the compiler would test the bit twice.
  uint32_t lanes;
  asm volatile(
      "{ .reg .pred set; .reg .b32 own;\n"
      "and.b32 own, %1, %2; setp.ne.u32 set, own, 0;\n"
      "vote.sync.ballot.b32 %0, set, 0xffffffff; @!set not.b32 %0, %0; }"
      : "=r"(lanes)
      : "r"(word), "r"(bit));
  return lanes;
#else
  const bool set = (word & bit) != 0;
  const uint32_t lanes = __ballot_sync(0xffffffffu, set);
  return set ? lanes : ~lanes;
#endif
}

// The value of the lane whose index is lower by `distance`, or this lane's own value if there is
// none. T may have any size. All lanes of the warp take part.
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

// The inclusive prefix sum: the values of lanes 0 to this one. All lanes of the warp take part.
__device__ __forceinline__ uint32_t warp_sum_up(uint32_t value) {
#pragma unroll
  for (uint32_t distance = 1; distance < 32; distance *= 2) {
    const uint32_t below = __shfl_up_sync(0xffffffffu, value, distance);
    if (threadIdx.x % 32 >= distance) value += below;
  }
  return value;
}

}  // namespace gpuopt
