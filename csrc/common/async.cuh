// Copies from global to shared memory that bypass the registers: cp.async (PTX ISA, "Data Movement
// and Conversion Instructions: Asynchronous copy"), sm_80 and later; ordinary accesses before.
#pragma once

#include "common/vec.cuh"

namespace gpuopt {

// N values of 4, 8 or 16 bytes in all, both addresses aligned to that.
template <typename T, int N>
__device__ __forceinline__ void copy_async(T* shared, const T* global) {
  constexpr int kBytes = sizeof(T) * N;
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
#if __CUDA_ARCH__ >= 800
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  if constexpr (kBytes == 16) {  // 16 bytes may skip the L1 cache
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(global), "n"(kBytes)
                 : "memory");
  }
#else
  store_pack(shared, load_pack<T, N>(global));
#endif
}

// Waits for the thread's own copies; a barrier makes them visible to the block.
__device__ __forceinline__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// Ends a group of the thread's own copies.
__device__ __forceinline__ void end_copy_group() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits for all groups of the thread's own copies but the last kLeft.
template <int kLeft>
__device__ __forceinline__ void wait_for_copy_groups() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
#endif
}

}  // namespace gpuopt
