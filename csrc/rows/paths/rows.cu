// The reduction that a plan asks for.
#include "rows/paths/rows_reductions.h"
#include "rows/rows.h"

namespace gpuopt::rows {

cudaError_t launch(const ReducePlan& plan, Workspace& workspace, cudaStream_t stream) {
  const ReduceProblem& problem = plan.args.problem;
  if (problem.selected != nullptr) return run_selected(plan, workspace, stream);
  switch (problem.reduce) {
    case Reduce::kMax:
      return run_max(plan, workspace, stream);
    case Reduce::kMin:
      return run_min(plan, workspace, stream);
    case Reduce::kProd:
      return run_prod(plan, workspace, stream);
    case Reduce::kLogSum:
      return run_log_sum(plan, workspace, stream);
    case Reduce::kSum:
    case Reduce::kMean:
      break;
  }
  return run_sum(plan, workspace, stream);
}

}  // namespace gpuopt::rows
