// Constants and index arithmetic shared by host plans and kernels.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define GPUOPT_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define GPUOPT_HOST_DEVICE inline
#endif

namespace gpuopt {

// The widest access of a thread, in bytes (ld.global.v4.b32; PTX ISA, "ld").
constexpr int kAccessBytes = 16;
constexpr int kWarp = 32;  // threads

template <typename T>
constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

inline int64_t pow2_ceil(int64_t n) {
  int64_t p = 1;
  while (p < n) p *= 2;
  return p;
}

// Division of n < 2^31 by a fixed d in [1, 2^31) as one high multiply, one add and one shift:
// the round-up method of Granlund and Montgomery, "Division by Invariant Integers using
// Multiplication" (PLDI 1994), section 4. With n < 2^31 the add can't overflow 32 bits.
struct FastDiv {
  uint32_t divisor = 1;
  uint32_t multiplier = 1;
  uint32_t shift = 0;

  FastDiv() = default;
  explicit FastDiv(uint32_t d) : divisor(d) {
    while ((uint64_t{1} << shift) < d) ++shift;
    multiplier =
        static_cast<uint32_t>(((uint64_t{1} << 32) * ((uint64_t{1} << shift) - d)) / d + 1);
  }

  GPUOPT_HOST_DEVICE uint32_t div(uint32_t n) const {
#if defined(__CUDA_ARCH__)
    return (__umulhi(n, multiplier) + n) >> shift;
#else
    return static_cast<uint32_t>(((uint64_t{n} * multiplier >> 32) + n) >> shift);
#endif
  }

  // n becomes the quotient; the remainder is returned.
  GPUOPT_HOST_DEVICE uint32_t divmod(uint32_t& n) const {
    const uint32_t quotient = div(n);
    const uint32_t remainder = n - quotient * divisor;
    n = quotient;
    return remainder;
  }
};

inline FastDiv divide_by(int64_t n) { return FastDiv(static_cast<uint32_t>(n)); }

// The largest index that FastDiv supports, so also the most elements that one launch may address
// with it.
constexpr int64_t kMaxIndex32 = INT32_MAX;

}  // namespace gpuopt
