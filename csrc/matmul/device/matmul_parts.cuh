// The sums of parts along k.
#pragma once

#include "common/index.h"
#include "common/launch.cuh"

namespace gpuopt::matmul {

// [split_k]
// Adds the sums of parts in order. partial[part][output].
static __global__ void __launch_bounds__(256)
    add_parts_kernel(const float* partial, float* out, int64_t outputs, int parts) {
  const int64_t output = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (output >= outputs) return;
  float sum = 0;
#pragma unroll 4
  for (int part = 0; part < parts; ++part) sum += partial[part * outputs + output];
  out[output] = sum;
}
// [split_k]

inline cudaError_t add_parts(const float* partial, float* out, int64_t outputs, int parts,
                             cudaStream_t stream) {
  constexpr unsigned kThreads = 256;
  return launch_kernel(add_parts_kernel,
                       {static_cast<unsigned>(ceil_div<int64_t>(outputs, kThreads)), kThreads},
                       stream, partial, out, outputs, parts);
}

}  // namespace gpuopt::matmul
