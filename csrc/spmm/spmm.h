// Sparse products: the contract between bindings and kernels. Sums and extrema are the reductions
// of rows/rows.h. Launchers enqueue work on `stream` of the current device and never synchronise.
#pragma once

#include <cuda_runtime_api.h>

#include "common/export.h"
#include "common/workspace.h"
#include "spmm/spmm_plan.h"

namespace gpuopt::spmm {

GPUOPT_EXPORT cudaError_t launch(const ProductPlan& plan, Workspace& workspace,
                                 cudaStream_t stream);

}  // namespace gpuopt::spmm
