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
  store_vec(shared, load_vec<T, N>(global));
#endif
}

// A value of 4, 8 or 16 bytes, or 0 if not `valid`: nothing is read then.
template <typename T>
__device__ __forceinline__ void copy_async_if(T* shared, const T* global, bool valid) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
               "l"(global), "n"(sizeof(T)), "r"(valid ? static_cast<int>(sizeof(T)) : 0)
               : "memory");
#else
  *shared = valid ? *global : T{};
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

// Copies of a whole warp, each of neighbouring aligned vectors: in bulk (PTX ISA, "cp.async.bulk",
// and "mbarrier" for how they are counted), where a lane issues one instruction for each; sm_90 and
// later, else by all lanes. They belong to kStages, whose copies are waited for in turns: copies,
// then wait(), then copies again. All lanes call the same with the same arguments.
template <int kStages>
class WarpCopies {
 public:
  using Barriers = uint64_t[kStages];

  // `barriers` are in shared memory and of this object alone.
  __device__ __forceinline__ explicit WarpCopies(Barriers& barriers) {
#if __CUDA_ARCH__ >= 900
    barriers_ = static_cast<uint32_t>(__cvta_generic_to_shared(barriers));
    if (threadIdx.x % 32 == 0) {
#pragma unroll
      for (int stage = 0; stage < kStages; ++stage) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier(stage)) : "memory");
      }
      // racecheck warns of fence.mbarrier_init, as CUTLASS has it here, whose gain was below 1 %.
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

  // Waits for the stage's copies of this turn, `odd` where it is the stage's second, fourth and so
  // on; __syncwarp() makes those of other lanes visible.
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

  // Before copies to where lanes have written.
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
