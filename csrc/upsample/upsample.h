// Nearest-neighbour resampling of images: the contract between bindings and kernels. Launchers
// enqueue on `stream` of the current device, allocate nothing and never synchronise.
#pragma once

#include <cuda_runtime_api.h>

#include "common/export.h"
#include "upsample/upsample_backward_args.h"
#include "upsample/upsample_forward_args.h"

namespace gpuopt::upsample {

// to[n, c, y, x] = from[n, c, source(y), source(x)]
GPUOPT_EXPORT cudaError_t launch(const ForwardPlan& plan, cudaStream_t stream);

// to[n, c, y, x] = the sum of all from[n, c, oy, ox] with source(oy) == y and source(ox) == x
GPUOPT_EXPORT cudaError_t launch(const BackwardPlan& plan, cudaStream_t stream);

}  // namespace gpuopt::upsample
