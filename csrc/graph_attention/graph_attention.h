// Attention over a sparse matrix: the contract between bindings and kernels. Launchers enqueue work
// on `stream` of the current device and never synchronise.
#pragma once

#include <cuda_runtime_api.h>

#include "common/export.h"
#include "common/workspace.h"
#include "graph_attention/graph_attention_plan.h"

namespace gpuopt::graph_attention {

GPUOPT_EXPORT cudaError_t launch(const AttentionPlan& plan, Workspace& workspace,
                                 cudaStream_t stream);
GPUOPT_EXPORT cudaError_t launch(const AttentionGradientPlan& plan, Workspace& workspace,
                                 cudaStream_t stream);

}  // namespace gpuopt::graph_attention
