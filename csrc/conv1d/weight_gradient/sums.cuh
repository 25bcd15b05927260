// Sums of weight gradients on the device. Blocks compute partial sums of some taps over positions
// of all examples, in a fixed order. finish_kernel adds the partial sums up.
#pragma once

#include "common/warp.cuh"
#include "conv1d/device/launch.cuh"
#include "conv1d/device/rows.cuh"
#include "conv1d/weight_gradient/weight.h"

namespace gpuopt::conv1d {

// Sums values over a warp. Lane i keeps max(kCount / 32, 1) sums from i * kCount / 32 on.
template <int kCount, int kMask = 16, typename C, int kSize>
__device__ __forceinline__ void sum_warp(C (&values)[kSize]) {
  if constexpr (kCount > 1) {
    const bool upper = threadIdx.x & kMask;
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const C first = values[i], second = values[i + kCount / 2];
      const C kept = upper ? second : C(first), given = upper ? first : C(second);
      values[i] = kept + shuffle_xor(given, kMask);
    }
  } else {
    values[0] = values[0] + shuffle_xor(values[0], kMask);
  }
  if constexpr (kMask > 1) sum_warp<(kCount > 1 ? kCount / 2 : 1), kMask / 2>(values);
}

// Sums kCount values over the block and calls emit(i, sum) for each.
template <int kCount, typename C, typename Emit>
__device__ __forceinline__ void sum_block(C (&values)[kCount], Emit&& emit) {
  static_assert(kCount <= 32);
  constexpr int kWarps = kThreads / 32, kLanes = 32 / kCount;  // threads with the same value
  __shared__ C sums[kWarps][kCount];
  sum_warp<kCount>(values);
  if (threadIdx.x % kLanes == 0) sums[threadIdx.x / 32][threadIdx.x % 32 / kLanes] = values[0];
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < kCount; i += kThreads) {
    C sum = sums[0][i];
#pragma unroll
    for (int warp = 1; warp < kWarps; ++warp) sum += sums[warp][i];
    emit(i, sum);
  }
}

template <typename T>
__device__ __forceinline__ void emit_weight(const WeightArgs& args, uint32_t split, int64_t index,
                                            compute_t<T> sum) {
  if (args.partial) {
    static_cast<compute_t<T>*>(args.to)[split * args.weights + index] = sum;
  } else {
    static_cast<T*>(args.to)[index] = from_compute<T>(sum);
  }
}

// A thread's current position of the gradient. For kernels that read positions one by one.
struct PositionCursor {
  int64_t left, image, position;  // left: including this one

  // Visits every `apart`th position from `first` on.
  __device__ __forceinline__ PositionCursor(const WeightArgs& args, int64_t first, int64_t apart)
      : left((args.batch * args.grad_size - first + apart - 1) / apart),
        image(first / args.grad_size),
        position(first - image * args.grad_size) {}

  __device__ __forceinline__ void move_on(const WeightArgs& args) {
    --left;
    image += args.next_images;
    position += args.next_positions;
    if (position >= args.grad_size) {
      position -= args.grad_size;
      ++image;
    }
  }
};

// Loads the inputs under a position's taps, 0 outside the row. Without branches, all loads are in
// flight at once (depthwise (1,4075,16), 14 taps, stride 3, f32: 15 us, 22 us with branches).
template <typename T, int kTaps>
__device__ __forceinline__ void load_under(compute_t<T> (&values)[kTaps], const WeightArgs& args,
                                           const T* row, int64_t under, uint32_t first_tap) {
  T loaded[kTaps];
#pragma unroll
  for (int k = 0; k < kTaps; ++k) {
    const bool valid = first_tap + k < args.taps &&
                       static_cast<uint64_t>(under) < static_cast<uint64_t>(args.from_size);
    loaded[k] = load_if(row + under * args.from_stride, valid);
    under += args.dilation;
  }
#pragma unroll
  for (int k = 0; k < kTaps; ++k) values[k] = to_compute(loaded[k]);
}

constexpr uint32_t kFinishSums = 8;  // of a block, side by side in memory: a sector

// Adds up partial sums [splits, all] of the gradients [weights] of weights, then of biases. Either
// result may be null.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    finish_kernel(const compute_t<T>* sums, T* to_weight, int64_t weights, T* to_bias, int64_t all,
                  uint32_t splits) {
  constexpr int kWarps = kThreads / 32;
  __shared__ compute_t<T> shared_sums[kWarps][kFinishSums];
  launch_dependents();
  const uint32_t column = threadIdx.x % kFinishSums;
  const int64_t index = int64_t{blockIdx.x} * kFinishSums + column;
  grid_dependency_wait();
  compute_t<T> sum = {};
  if (index < all) {
#pragma unroll 4
    for (uint32_t split = threadIdx.x / kFinishSums; split < splits;
         split += kThreads / kFinishSums) {
      sum += sums[split * all + index];
    }
  }
#pragma unroll
  for (int mask = kFinishSums; mask < 32; mask *= 2) sum += shuffle_xor(sum, mask);
  if (threadIdx.x % 32 < kFinishSums) shared_sums[threadIdx.x / 32][column] = sum;
  __syncthreads();
  if (threadIdx.x >= kFinishSums || index >= all) return;
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp) sum += shared_sums[warp][column];
  T* const to = index < weights ? to_weight : to_bias;
  if (to != nullptr) to[index < weights ? index : index - weights] = from_compute<T>(sum);
}

template <typename T>
cudaError_t launch_finish(const compute_t<T>* sums, T* to_weight, int64_t weights, T* to_bias,
                          int64_t all, uint32_t splits, cudaStream_t stream) {
  const LaunchShape shape = launch_shape(ceil_div<int64_t>(all, kFinishSums), kThreads);
  return launch_kernel(finish_kernel<T>, shape, stream, sums, to_weight, weights, to_bias, all,
                       splits);
}

}  // namespace gpuopt::conv1d
