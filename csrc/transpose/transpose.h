// Transposition of matrices: the contract between bindings and kernels. The launcher enqueues on
// `stream` of the current device. It never synchronises and allocates nothing.
#pragma once

#include <cuda_runtime_api.h>

#include "common/export.h"
#include "transpose/transpose_plan.h"

namespace gpuopt::transpose {

// The caller handles plans of kEngine.
GPUOPT_EXPORT cudaError_t transpose(const Plan& plan, cudaStream_t stream);

}  // namespace gpuopt::transpose
