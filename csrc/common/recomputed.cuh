// Saves registers.
#pragma once

namespace gpuopt {

// The same value. The compiler computes what depends on it where it is used, and does not keep it
// in registers for the whole kernel.
template <typename I>
__device__ __forceinline__ I recomputed(I value) {
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(I) == 8) {
    asm volatile("" : "+l"(value));
  } else {
    asm volatile("" : "+r"(value));
  }
#endif
  return value;
}

}  // namespace gpuopt
