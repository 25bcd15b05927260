#include "common/floats.cuh"
#include "spmm/paths/spmm_reduce.cuh"
#include "spmm/paths/spmm_reductions.h"

namespace gpuopt::spmm {

cudaError_t run_log_sum(const ReducePlan& plan, Workspace& workspace, cudaStream_t stream) {
  return with_float(plan.args.problem.dtype, [&](auto zero) {
    using T = decltype(zero);
    using State = LogSumState<compute_t<T>>;
    return plan.access == Access::kSpread
               ? run<T, State, Access::kSpread, false>(plan, workspace, stream)
               : run<T, State, Access::kSingle, false>(plan, workspace, stream);
  });
}

}  // namespace gpuopt::spmm
