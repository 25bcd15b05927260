// Selective scans: the contract between bindings and kernels. Launchers enqueue work on `stream` of
// the current device and never synchronise.
#pragma once

#include <cuda_runtime_api.h>

#include "common/export.h"
#include "common/workspace.h"
#include "selective_scan/selective_scan_args.h"

namespace gpuopt::selective {

// A plan is passed by value, because launch() writes the addresses of temporary memory into it.
GPUOPT_EXPORT cudaError_t launch(ForwardPlan plan, Workspace& workspace, cudaStream_t stream);
// The caller has set the addresses of the parts in plan.backward.args.gradients.
GPUOPT_EXPORT cudaError_t launch(BackwardPlan plan, Workspace& workspace, cudaStream_t stream);
// An error if there are more than kMaxIndex32 channels in all heads and batches.
GPUOPT_EXPORT cudaError_t launch(const UpdatePlan& plan, cudaStream_t stream);

}  // namespace gpuopt::selective
