#include "common/floats.cuh"
#include "spmm/paths/spmm_reduce.cuh"
#include "spmm/paths/spmm_reductions.h"

namespace gpuopt::spmm {

cudaError_t run_log_sum(const ReducePlan& plan, Workspace& workspace, cudaStream_t stream) {
  return with_float(plan.args.problem.dtype, [&](auto zero) {
    using T = decltype(zero);
    return run_any<T, LogSumState<compute_t<T>>>(plan, workspace, stream);
  });
}

}  // namespace gpuopt::spmm
