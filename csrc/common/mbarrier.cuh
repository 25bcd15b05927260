// Barriers in shared memory (PTX ISA, "Parallel Synchronization and Communication Instructions:
// mbarrier"). A phase of a barrier ends when its last arrival has come and all bytes that it
// expects have been copied. They need sm_90: a kernel that uses them must not run on older GPUs.
#pragma once

#include <cstdint>

namespace gpuopt {

using Barrier = uint64_t;

// One thread calls this before __syncthreads(). fence_barriers() makes the barrier known to bulk
// copies and to other blocks of the cluster.
__device__ __forceinline__ void init_barrier(Barrier* barrier, uint32_t arrivals) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(barrier))),
               "r"(arrivals)
               : "memory");
#endif
}
__device__ __forceinline__ void fence_barriers() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

__device__ __forceinline__ void arrive(Barrier* barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(barrier)))
               : "memory");
#endif
}

// Arrives, and adds to the bytes that the phase expects.
__device__ __forceinline__ void arrive_expecting(Barrier* barrier, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(barrier))),
               "r"(bytes)
               : "memory");
#endif
}

// Arrives at the barrier of another block of the cluster, where `barrier` is in this block's shared
// memory. It orders this thread's memory accesses for its own block only: a scope of the cluster
// would wait for all stores of the thread to reach the L2 cache.
__device__ __forceinline__ void arrive_in_block(Barrier* barrier, uint32_t block) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(barrier))),
      "r"(block)
      : "memory");
#endif
}

// Waits until the phase of this parity has ended. The first phase has parity 0. A wait with parity
// 1 at a new barrier returns at once.
__device__ __forceinline__ void wait_barrier(Barrier* barrier, uint32_t parity) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again%=: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again%=;\n"
      "}" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(barrier))),
      "r"(parity)
      : "memory");
#endif
}

// A barrier of some warps of the block (PTX ISA, "barrier"). __syncthreads() is number 0.
__device__ __forceinline__ void sync_warps(int number, int threads) {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
#endif
}

// A position in a ring of stages, with the parity of its barrier.
template <int kStages>
struct Ring {
  int stage = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void next() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

}  // namespace gpuopt
