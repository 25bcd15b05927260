// Reductions of strided tensors: the contract between bindings and kernels. Plain host C++ plans a
// call (reduce_plan.h), and launch() enqueues it on `stream` of the current device. It never
// synchronises.
#pragma once

#include <cuda_runtime_api.h>

#include "common/export.h"
#include "common/workspace.h"
#include "reduce/reduce_plan.h"

namespace gpuopt::reduce {

GPUOPT_EXPORT cudaError_t launch(const Plan& plan, Workspace& workspace, cudaStream_t stream);

}  // namespace gpuopt::reduce
