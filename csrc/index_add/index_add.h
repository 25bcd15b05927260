// index_add: the contract between bindings and kernels. Launchers enqueue on `stream` of the
// current device and never synchronise.
#pragma once

#include <cuda_runtime_api.h>

#include "common/export.h"
#include "common/workspace.h"
#include "index_add/index_add_plan.h"

namespace gpuopt::index_add {

// Adds one part of a problem (for_each_plan). An index out of range fails a device-side assertion
// before anything is added for it.
GPUOPT_EXPORT cudaError_t launch(const Plan& plan, Workspace& workspace, cudaStream_t stream);

}  // namespace gpuopt::index_add
