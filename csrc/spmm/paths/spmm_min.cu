#include "spmm/device/spmm_types.cuh"
#include "spmm/paths/spmm_reduce.cuh"
#include "spmm/paths/spmm_reductions.h"

namespace gpuopt::spmm {

cudaError_t run_min(const ReducePlan& plan, Workspace& workspace, cudaStream_t stream) {
  return with_number(plan.args.problem.dtype, [&](auto zero) {
    using T = decltype(zero);
    using State = ExtremeState<compute_t<T>, false>;
    if constexpr (!std::is_integral_v<T>) {
      if (plan.access == Access::kVector) {
        return run<T, State, Access::kVector>(plan, workspace, stream);
      }
    }
    return plan.access == Access::kSpread
               ? run<T, State, Access::kSpread>(plan, workspace, stream)
               : run<T, State, Access::kSingle>(plan, workspace, stream);
  });
}

}  // namespace gpuopt::spmm
