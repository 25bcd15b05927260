// Device code that tap GEMMs share.
#pragma once

#include "common/workspace.h"
#include "conv1d/device/launch.cuh"
#include "conv1d/device/mma.cuh"
#include "conv1d/device/rows.cuh"
#include "conv1d/tap_gemm.h"

namespace gpuopt::conv1d {

// Neighbouring threads read neighbouring positions and write whole sectors.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    channels_last_copy_kernel(const __grid_constant__ ChannelsLastCopy args) {
  launch_dependents();
  grid_dependency_wait();
  const uint32_t lane = blockIdx.x * kThreads + threadIdx.x;
  if (lane >= args.lanes) return;
  uint32_t image = lane;
  const uint32_t row = args.rows.divmod(image);
  const uint32_t part = args.parts.divmod(image);
  const uint32_t signal = image, group = args.groups.divmod(image);
  const int32_t position = args.first + static_cast<int32_t>(row);
  const bool inside = static_cast<uint32_t>(position) < static_cast<uint32_t>(args.size);
  const T* const from = static_cast<const T*>(args.from) + image * args.batch_stride +
                        group * args.group_stride + position * args.stride;
  Vec<T, 16> values;
#pragma unroll
  for (uint32_t i = 0; i < 16; ++i) {
    const uint32_t c = 16 * part + i;
    values.values[i] = load_if(from + c * args.channel_stride, inside && c < args.channels);
  }
  uint4 vecs[2];
  memcpy(vecs, &values, sizeof(vecs));
  const int64_t copied = (int64_t{signal} * args.rows.divisor + row) * args.parts.divisor + part;
  uint4* const to = static_cast<uint4*>(args.to) + 2 * copied;
  to[0] = vecs[0];
  to[1] = vecs[1];
}

// Starts a copy to the workspace. `to` becomes its address.
template <typename T>
cudaError_t copy_channels_last(ChannelsLastCopy copy, const void*& to, Workspace& workspace,
                               cudaStream_t stream) {
  to = copy.to = workspace.allocate(copy.lanes * 16 * sizeof(T));
  const LaunchShape launch = launch_shape(ceil_div<int64_t>(copy.lanes, kThreads), kThreads);
  return launch_kernel(channels_last_copy_kernel<T>, launch, stream, copy);
}

template <typename T>
__device__ __forceinline__ void store_result(const TapGemmResult& result, int64_t image,
                                             int64_t channel, int64_t position, float sum) {
  float value[1] = {sum};
  if (result.bias != nullptr) {
    value[0] += to_compute(static_cast<const T*>(result.bias)[channel * result.bias_stride]);
  }
  activate<T>(value, result.activation);
  static_cast<T*>(result.to)[image * result.batch_stride + channel * result.channel_stride +
                             position * result.stride] = from_compute<T>(value[0]);
}

// Adds up partial sums [splits, count], in order. count is batch * channels * size.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    add_splits_kernel(const float* partial, const __grid_constant__ TapGemmResult result,
                      uint32_t count, uint32_t splits, FastDiv channels, FastDiv size) {
  launch_dependents();
  grid_dependency_wait();
  const uint32_t index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= count) return;
  float sum = 0;
#pragma unroll 4
  for (uint32_t split = 0; split < splits; ++split) sum += partial[int64_t{split} * count + index];
  uint32_t image = index;
  const uint32_t position = size.divmod(image), channel = channels.divmod(image);
  store_result<T>(result, image, channel, position, sum);
}

template <typename T>
cudaError_t add_splits(const void* partial, const TapGemmResult& result, uint32_t count,
                       uint32_t splits, FastDiv channels, FastDiv size, cudaStream_t stream) {
  return launch_kernel(add_splits_kernel<T>,
                       launch_shape(ceil_div<int64_t>(count, kThreads), kThreads), stream,
                       static_cast<const float*>(partial), result, count, splits, channels, size);
}

}  // namespace gpuopt::conv1d
