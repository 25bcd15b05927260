// Shared by the kernels of dot products: the sum over a block, and where it is written.
#pragma once

#include <cuda_runtime_api.h>

#include "common/atomic.cuh"
#include "common/index.h"
#include "common/launch.cuh"
#include "dot/device/dot_sum.cuh"
#include "dot/dot_args.h"
#include "dot/dot_tuning.h"

namespace gpuopt::dot {

// Blocks of a kernel that an SM must hold. Sums of 16 bytes need more registers than kBlocks
// leaves, so fewer blocks are required.
template <typename T>
constexpr int kBlocksOf = sizeof(sum_t<T>) > 8 ? kBlocks / 2 : kBlocks;

// Whether sums of T can be added atomically.
template <typename T>
constexpr bool kHasAtomics = std::is_floating_point_v<T> || kIsHalf<T>;

template <typename T>
__device__ __forceinline__ T result_of(sum_t<T> sum, bool conjugates) {
  return from_compute<T>(conjugate(sum, conjugates));
}

// Writes or adds the sum of one split of one row. One thread per row and split calls this.
template <typename T>
__device__ __forceinline__ void emit(void* to, Target target, int64_t row, uint32_t split,
                                     uint32_t splits, sum_t<T> sum, bool conjugates) {
  if (target == Target::kWorkspace) {
    static_cast<sum_t<T>*>(to)[row * splits + split] = sum;
    return;
  }
  T* out = static_cast<T*>(to) + row;
  if constexpr (kHasAtomics<T>) {
    if (target == Target::kAtomic) {
      // out is the first value of an aligned word. An f16 or bf16 is added as the lower half of
      // that word (common/atomic.cuh).
      atomic_add(out, result_of<T>(sum, false), out, out + 2);
      return;
    }
  }
  *out = result_of<T>(sum, conjugates);
}

// Sums over the block. Only the block's first thread gets the result.
template <typename V>
__device__ __forceinline__ V sum_block(V value) {
  __shared__ V sums[kWarp];
  value = sum_lanes(value, kWarp);
  if (blockDim.x > kWarp) {
    if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = value;
    __syncthreads();
    if (threadIdx.x < kWarp) {
      value = threadIdx.x < blockDim.x / kWarp ? sums[threadIdx.x] : V{};
      value = sum_lanes(value, kWarp);
    }
  }
  return value;
}

// The second launch of split rows. Block r adds the partial sums of row r in a fixed order.
template <typename T>
__global__ void __launch_bounds__(kFinishThreads)
    finish_kernel(const sum_t<T>* sums, T* out, uint32_t splits, bool conjugates) {
  launch_dependents();
  grid_dependency_wait();
  const sum_t<T>* of_row = sums + int64_t{blockIdx.x} * splits;
  sum_t<T> value = {};
  for (uint32_t split = threadIdx.x; split < splits; split += blockDim.x) {
    value = value + of_row[split];
  }
  value = sum_block(value);
  if (threadIdx.x == 0) out[blockIdx.x] = result_of<T>(value, conjugates);
}

// Zeroes the word that holds the result, before blocks add to it atomically.
template <typename T>
__global__ void __launch_bounds__(1) zero_kernel(T* out) {
  launch_dependents();
  grid_dependency_wait();
  out[0] = T{};
  if constexpr (sizeof(T) == 2) out[1] = T{};
}

}  // namespace gpuopt::dot
