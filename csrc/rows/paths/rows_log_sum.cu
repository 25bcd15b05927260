#include "common/floats.cuh"
#include "rows/paths/rows_reduce.cuh"
#include "rows/paths/rows_reductions.h"

namespace gpuopt::rows {

cudaError_t run_log_sum(const ReducePlan& plan, Workspace& workspace, cudaStream_t stream) {
  return with_float(plan.args.problem.dtype, [&](auto zero) {
    using T = decltype(zero);
    return run_any<T, LogSumState<compute_t<T>>>(plan, workspace, stream);
  });
}

}  // namespace gpuopt::rows
