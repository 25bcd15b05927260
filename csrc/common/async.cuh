// Asynchronous copies from global to shared memory, which bypass the registers: cp.async (PTX ISA,
// "Data Movement and Conversion Instructions: Asynchronous copy"). They need sm_80. Older GPUs run
// ordinary loads and stores instead.
#pragma once

#include "common/vec.cuh"

namespace gpuopt {

// Returns the same address in shared memory, kept in a register. Otherwise the compiler computes it
// again at each use, by two slow reads of special registers.
template <typename S>
__device__ __forceinline__ S* kept_in_register(S* shared) {
#if defined(__CUDA_ARCH__)
  auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("" : "+r"(address));
  return static_cast<S*>(__cvta_shared_to_generic(address));
#else
  return shared;
#endif
}

// Copies N values, 4, 8 or 16 bytes in all. Both addresses are aligned to that size.
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
  store_vec(shared, load_vec<T, N>(global));
#endif
}

// Copies one value of 4, 8 or 16 bytes. If not `valid`, it stores 0 and reads nothing.
template <typename T>
__device__ __forceinline__ void copy_async_if(T* shared, const T* global, bool valid) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
#if __CUDA_ARCH__ >= 800
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const int bytes = valid ? static_cast<int>(sizeof(T)) : 0;
  if constexpr (sizeof(T) == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(global),
                 "n"(sizeof(T)), "r"(bytes)
                 : "memory");
  }
#else
  *shared = valid ? *global : T{};
#endif
}

// Waits for this thread's copies. A barrier then makes them visible to the block.
__device__ __forceinline__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// Closes the current group of this thread's copies.
__device__ __forceinline__ void end_copy_group() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits for all groups of this thread's copies except the last kLeft.
template <int kLeft>
__device__ __forceinline__ void wait_for_copy_groups() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
#endif
}

// The copies of a warp. One copy moves neighbouring aligned 16-byte vectors to shared memory. From
// sm_90 on, one lane issues one bulk instruction per copy (PTX ISA, "cp.async.bulk"), and an
// mbarrier counts its bytes. On older GPUs every lane copies its share with copy_async.
//
// A copy belongs to one of kStages stages. The calls on a stage alternate: copies, wait(), copies
// again. All lanes make the same calls with the same arguments.
template <int kStages>
class WarpCopies {
 public:
  using Barriers = uint64_t[kStages];

  // `barriers` lies in shared memory and belongs to this object alone.
  __device__ __forceinline__ explicit WarpCopies(Barriers& barriers) {
#if __CUDA_ARCH__ >= 900
    barriers_ = static_cast<uint32_t>(__cvta_generic_to_shared(barriers));
    if (threadIdx.x % 32 == 0) {
#pragma unroll
      for (int stage = 0; stage < kStages; ++stage) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier(stage)) : "memory");
      }
      // CUTLASS has fence.mbarrier_init here. It gains less than 1 %, and racecheck warns about it.
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
#endif
  }

  __device__ __forceinline__ void copy(uint4* shared, const uint4* global, int32_t vecs,
                                       uint32_t stage = 0) {
    if (vecs <= 0) return;
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x % 32 == 0) {
      const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
      const uint32_t bytes = static_cast<uint32_t>(vecs) * kAccessBytes;
      asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier(stage)),
                   "r"(bytes)
                   : "memory");
      asm volatile(
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
          "[%3];" ::"r"(to),
          "l"(global), "r"(bytes), "r"(barrier(stage))
          : "memory");
    }
#else
    for (int32_t q = static_cast<int32_t>(threadIdx.x % 32); q < vecs; q += 32) {
      copy_async<uint4, 1>(shared + q, global + q);
    }
#endif
  }

  // Waits for the copies that the stage received after its last wait(). `odd` is the parity of this
  // wait: false for the first, third, ... wait on the stage, true for the second, fourth, ... After
  // it, __syncwarp() makes the copies of other lanes visible.
  __device__ __forceinline__ void wait(uint32_t stage = 0, bool odd = false) {
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x % 32 == 0) {
      asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier(stage)) : "memory");
    }
    __syncwarp();
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again%=: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again%=;\n"
        "}" ::"r"(barrier(stage)),
        "r"(static_cast<uint32_t>(odd))
        : "memory");
#else
    wait_for_copies();
#endif
  }

  // Call this before a copy() to shared memory that lanes have written.
  __device__ __forceinline__ static void release() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
    __syncwarp();
  }

 private:
  __device__ __forceinline__ uint32_t barrier(uint32_t stage) const {
    return barriers_ + stage * static_cast<uint32_t>(sizeof(uint64_t));
  }

  uint32_t barriers_;
};

}  // namespace gpuopt
