// What the kernels of dot products share: their arguments, the sum over a block, and where it goes.
#pragma once

#include <cuda_runtime_api.h>

#include "common/atomic.cuh"
#include "common/index.h"
#include "common/launch.cuh"
#include "dot/dot_plan.h"
#include "dot/dot_sum.cuh"

namespace gpuopt::dot {

// Blocks of a kernel that a SM must hold: fewer where sums need more than the registers
// that kBlocks leave.
template <typename T>
constexpr int kBlocksOf = sizeof(sum_t<T>) > 8 ? kBlocks / 2 : kBlocks;

enum class Target : uint8_t {
  kOut,        // the result, rounded to the operands' dtype
  kWorkspace,  // one of the partial sums, for finish_kernel
  kAtomic,     // added to the result, rounded to the operands' dtype
};

// Small: a launch's arguments are part of what a small dot product takes.
struct LineArgs {
  const void *self, *tensor;
  void* to;
  int64_t vecs;
  uint32_t tail;  // values after the last vector
  Target target;
  bool read_once, conjugate_self, conjugate_out;
};

struct Args {
  const void *self, *tensor;
  void* to;
  int64_t self_stride, tensor_stride;  // kValues
  int64_t self_row_stride, tensor_row_stride;
  int64_t rows, size;
  FastDiv splits;
  uint32_t x, y;  // powers of two
  uint32_t rows_per_lane;
  Target target;
  bool rows_first, read_once, conjugate_self, conjugate_out;
};

template <typename T>
__device__ __forceinline__ T result_of(sum_t<T> sum, bool conjugates) {
  return from_compute<T>(conjugate(sum, conjugates));
}

// By one thread for each row and split.
template <typename T>
__device__ __forceinline__ void emit(void* to, Target target, int64_t row, uint32_t split,
                                     uint32_t splits, sum_t<T> sum, bool conjugates) {
  if (target == Target::kWorkspace) {
    static_cast<sum_t<T>*>(to)[row * splits + split] = sum;
    return;
  }
  T* out = static_cast<T*>(to) + row;
  if constexpr (std::is_floating_point_v<T> || kIsHalf<T>) {
    if (target == Target::kAtomic) {
      // Out starts a whole word: a half is added as its lower half (common/atomic.cuh).
      atomic_add(out, result_of<T>(sum, false), out, out + 2);
      return;
    }
  }
  *out = result_of<T>(sum, conjugates);
}

// The sum over the block in its first thread.
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

// The second launch of a split dot product: a block for each row adds up its partial sums.
template <typename T>
__global__ void __launch_bounds__(kFinishThreads)
    finish_kernel(const sum_t<T>* sums, T* out, uint32_t splits, bool conjugates) {
  launch_dependents();
  grid_dependency_wait();
  const sum_t<T>* own = sums + int64_t{blockIdx.x} * splits;
  sum_t<T> value = {};
  for (uint32_t split = threadIdx.x; split < splits; split += blockDim.x) {
    value = value + own[split];
  }
  value = sum_block(value);
  if (threadIdx.x == 0) out[blockIdx.x] = result_of<T>(value, conjugates);
}

// Writes the word that a sum starts, for atomic additions to it.
template <typename T>
__global__ void __launch_bounds__(1) zero_kernel(T* out) {
  launch_dependents();
  grid_dependency_wait();
  out[0] = T{};
  if constexpr (sizeof(T) == 2) out[1] = T{};
}

}  // namespace gpuopt::dot
