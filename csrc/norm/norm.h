// The contract between bindings and kernels.
#pragma once

#include <cuda_runtime_api.h>

#include "common/export.h"
#include "common/workspace.h"
#include "norm/norm_channels_plan.h"
#include "norm/norm_plan.h"

namespace gpuopt::norm {

GPUOPT_EXPORT cudaError_t launch(const ForwardPlan& plan, Workspace& workspace,
                                 cudaStream_t stream);
GPUOPT_EXPORT cudaError_t launch(const BackwardPlan& plan, Workspace& workspace,
                                 cudaStream_t stream);
GPUOPT_EXPORT cudaError_t launch(const ChannelForwardPlan& plan, Workspace& workspace,
                                 cudaStream_t stream);
GPUOPT_EXPORT cudaError_t launch(const ChannelBackwardPlan& plan, Workspace& workspace,
                                 cudaStream_t stream);

}  // namespace gpuopt::norm
