// Reductions and maps of the rows of a sparse matrix: the contract between bindings and kernels.
// Launchers enqueue work on `stream` of the current device and never synchronise.
#pragma once

#include <cuda_runtime_api.h>

#include "common/export.h"
#include "common/workspace.h"
#include "rows/rows_plan.h"

namespace gpuopt::rows {

GPUOPT_EXPORT cudaError_t launch(const ReducePlan& plan, Workspace& workspace, cudaStream_t stream);
GPUOPT_EXPORT cudaError_t launch(MapPlan plan, Workspace& workspace, cudaStream_t stream);

}  // namespace gpuopt::rows
