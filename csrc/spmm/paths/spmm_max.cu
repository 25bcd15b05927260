#include "spmm/device/spmm_types.cuh"
#include "spmm/paths/spmm_reduce.cuh"
#include "spmm/paths/spmm_reductions.h"

namespace gpuopt::spmm {

cudaError_t run_max(const ReducePlan& plan, Workspace& workspace, cudaStream_t stream) {
  return with_number(plan.args.problem.dtype, [&](auto zero) {
    using T = decltype(zero);
    return run_any<T, ExtremeState<compute_t<T>, true>>(plan, workspace, stream);
  });
}

}  // namespace gpuopt::spmm
