// Kernel launches. With use_pdl, a grid is set up while the previous grid of the stream still runs
// (CUDA C++ Programming Guide, "Programmatic Dependent Launch").
#pragma once

#include <cuda_runtime_api.h>

#include "common/launch_shape.h"

namespace gpuopt {

// Permits launches of `kernel` on the current device with `bytes` of dynamic shared memory. A
// kernel that has no permission has 48 KB, static shared memory included. Permission only grows, so
// no other host thread takes it back between this call and the launch.
cudaError_t permit_shared_bytes(const void* kernel, size_t bytes);

template <typename... Parameters, typename... Arguments>
cudaError_t launch_kernel(void (*kernel)(Parameters...), const LaunchShape& shape,
                          cudaStream_t stream, const Arguments&... arguments) {
  if (shape.shared_bytes > 0) {
    const cudaError_t error =
        permit_shared_bytes(reinterpret_cast<const void*>(kernel), shape.shared_bytes);
    if (error != cudaSuccess) return error;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(shape.blocks);
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attributes[2];
#if defined(GPUOPT_NO_OVERLAP)  // see toolchain.py
  constexpr bool kOverlaps = false;
#else
  constexpr bool kOverlaps = true;
#endif
  if (kOverlaps && shape.use_pdl) {
    cudaLaunchAttribute& overlap = attributes[config.numAttrs++];
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {shape.cluster, 1, 1};
  }
  config.attrs = attributes;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

// Lets the next grid be set up once every block of this grid has called this.
__device__ __forceinline__ void launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// launch_dependents() lets the GPU start a block each 1.25 ns at most (H200), and a block that
// moves 4 KB takes 1 ns of the memory's time. So grids of many such blocks do not call it.
__device__ __forceinline__ void launch_next() {
  if (gridDim.x <= kMostOverlappingBlocks) launch_dependents();
}

// Waits until the previous grid has finished and its writes are visible.
__device__ __forceinline__ void grid_dependency_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace gpuopt
