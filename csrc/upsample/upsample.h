// Nearest-neighbour resampling of images: the contract between bindings and kernels. Launchers
// enqueue on `stream` of the current device, allocate nothing and never synchronise.
#pragma once

#include <cuda_runtime_api.h>

#include "common/export.h"
#include "upsample/upsample_problem.h"

namespace gpuopt::upsample {

// to[n, c, y, x] = from[n, c, source(y), source(x)]
GPUOPT_EXPORT cudaError_t forward(const Problem& problem, const Device& device,
                                  cudaStream_t stream);

// to[n, c, y, x] = the sum of all from[n, c, oy, ox] with source(oy) == y and source(ox) == x
GPUOPT_EXPORT cudaError_t backward(const Problem& problem, const Device& device,
                                   cudaStream_t stream);

}  // namespace gpuopt::upsample
