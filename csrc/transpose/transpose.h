// Transposition of matrices: the contract between bindings and kernels. Launchers enqueue on
// `stream` of the current device, never synchronise, allocate nothing.
#pragma once

#include <cuda_runtime_api.h>

#include "common/export.h"
#include "transpose/transpose_plan.h"

namespace gpuopt::transpose {

// `plan` is make_plan(problem), and not for the engine.
GPUOPT_EXPORT cudaError_t transpose(const Problem& problem, const Plan& plan, cudaStream_t stream);

}  // namespace gpuopt::transpose
