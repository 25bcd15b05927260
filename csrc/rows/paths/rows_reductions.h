// The reductions. Each is compiled alone. They run a plan whose problem asks for them.
#pragma once

#include "rows/rows.h"

namespace gpuopt::rows {

cudaError_t run_sum(const ReducePlan& plan, Workspace& workspace, cudaStream_t stream);
cudaError_t run_selected(const ReducePlan& plan, Workspace& workspace, cudaStream_t stream);
cudaError_t run_max(const ReducePlan& plan, Workspace& workspace, cudaStream_t stream);
cudaError_t run_min(const ReducePlan& plan, Workspace& workspace, cudaStream_t stream);
cudaError_t run_prod(const ReducePlan& plan, Workspace& workspace, cudaStream_t stream);
cudaError_t run_log_sum(const ReducePlan& plan, Workspace& workspace, cudaStream_t stream);

}  // namespace gpuopt::rows
