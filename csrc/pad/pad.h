// Copies to indices that a map of each dimension gives: the contract between bindings and kernels.
// Launchers enqueue on `stream` of the current device.
#pragma once

#include <cuda_runtime_api.h>

#include "common/dtype.h"
#include "common/export.h"
#include "pad/pad_sum_plan.h"

namespace gpuopt::pad {

GPUOPT_EXPORT cudaError_t copy(const CopyPlan& plan, cudaStream_t stream);

// Sums of kFloat32, kFloat16 and kBFloat16 are computed in float32, of kFloat64 in float64.
GPUOPT_EXPORT cudaError_t sum(const SumPlan& plan, DType dtype, cudaStream_t stream);

}  // namespace gpuopt::pad
