// Clusters of blocks (CUDA C++ Programming Guide, "Thread Block Clusters"): blocks that run at once
// and write to each other's shared memory. They need sm_90: see Device::has_clusters.
#pragma once

#include <cstdint>
#include <cstring>

namespace gpuopt {

constexpr int kMaxCluster = 8;  // blocks of a cluster on every GPU that has clusters

// A barrier of all threads of a cluster, in two parts. What a thread has written before it arrives
// is visible to all threads after they have waited.
__device__ __forceinline__ void arrive_in_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void wait_for_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// Stores a value to the shared memory of another block of the cluster, where `shared` is in this
// block's. Both blocks must have passed a barrier of the cluster, and the other must not end before
// it has passed another one.
template <typename T>
__device__ __forceinline__ void store_to_block(T* shared, unsigned block, const T& value) {
#if __CUDA_ARCH__ >= 900
  static_assert(sizeof(T) % 4 == 0);
  uint32_t words[sizeof(T) / 4], to;
  memcpy(words, &value, sizeof(T));
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(to)
      : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(shared))), "r"(block));
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(T) / 4); ++i) {
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(to + 4 * i), "r"(words[i]) : "memory");
  }
#else
  *shared = value;
#endif
}

}  // namespace gpuopt
