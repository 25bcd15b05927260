// 16 bytes at any address, loaded as the aligned vectors that hold them.
#pragma once

#include "common/vec.cuh"

namespace gpuopt {

// The first `count` bytes are from `a`, the rest from `b`.
__device__ __forceinline__ uint32_t join_bytes(uint32_t a, uint32_t b, int count) {
  const uint32_t mask = count <= 0 ? 0 : count >= 4 ? ~0u : (1u << (8 * count)) - 1;
  return (a & mask) | (b & ~mask);
}
__device__ __forceinline__ uint4 join_bytes(const uint4& a, const uint4& b, int count) {
  return {join_bytes(a.x, b.x, count), join_bytes(a.y, b.y, count - 4),
          join_bytes(a.z, b.z, count - 8), join_bytes(a.w, b.w, count - 12)};
}

// The bytes from `first` up to `last`, exclusive, are needed.
class AnyVec {
 public:
  // Starts to load. An aligned vector is read if it has a needed byte, and nothing from `end` on.
  __device__ __forceinline__ void load(const void* address, int first, int last, const char* end) {
    shift_ = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(address) % kAccessBytes);
    from_ = static_cast<const char*>(address) - shift_;
    const int shift = static_cast<int>(shift_);
    const bool low = first < last && first + shift < kAccessBytes;
    const bool high = first < last && last + shift > kAccessBytes;
    low_ = load_16_bytes(from_, low && end - from_ >= kAccessBytes, false);
    high_ = load_16_bytes(from_ + kAccessBytes, high && end - from_ >= 2 * kAccessBytes, false);
    cut_low_ = low && end - from_ < kAccessBytes;
    cut_high_ = high && end - from_ < 2 * kAccessBytes;
  }

  // Returns the 16 bytes. Bytes that are not needed may have any value. It is called after the
  // load() of other vectors: the branch on the end of memory would make one wait for another.
  __device__ __forceinline__ uint4 get(const char* end) {
    if (cut_low_) low_ = part(from_, end);
    if (cut_high_) high_ = part(from_ + kAccessBytes, end);
    const auto vec = shift_vecs<uint32_t>(low_, high_, shift_);
    return {vec.values[0], vec.values[1], vec.values[2], vec.values[3]};
  }

 private:
  // Byte after byte, from the last one on. A loop, because it runs at the end of memory only.
  static __device__ __forceinline__ uint4 part(const char* from, const char* end) {
    uint4 words = {};
#pragma unroll 1
    for (int i = kAccessBytes - 1; i >= 0; --i) {
      words.w = __funnelshift_r(words.z, words.w, 24);
      words.z = __funnelshift_r(words.y, words.z, 24);
      words.y = __funnelshift_r(words.x, words.y, 24);
      words.x <<= 8;
      if (from + i < end) words.x |= static_cast<uint8_t>(from[i]);
    }
    return words;
  }

  const char* from_;
  uint32_t shift_;
  bool cut_low_, cut_high_;
  uint4 low_, high_;
};

}  // namespace gpuopt
