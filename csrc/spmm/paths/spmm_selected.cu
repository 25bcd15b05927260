// Sums of the entries that were a maximum: its gradient.
#include "common/floats.cuh"
#include "spmm/paths/spmm_reduce.cuh"
#include "spmm/paths/spmm_reductions.h"

namespace gpuopt::spmm {

cudaError_t run_selected(const ReducePlan& plan, Workspace& workspace, cudaStream_t stream) {
  return with_float(plan.args.problem.dtype, [&](auto zero) {
    using T = decltype(zero);
    using State = SumState<compute_t<T>>;
    return plan.access == Access::kSpread
               ? run<T, State, Access::kSpread, true>(plan, workspace, stream)
               : run<T, State, Access::kSingle, true>(plan, workspace, stream);
  });
}

}  // namespace gpuopt::spmm
