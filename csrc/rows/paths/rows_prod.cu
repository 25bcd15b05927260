#include "rows/device/rows_types.cuh"
#include "rows/paths/rows_reduce.cuh"
#include "rows/paths/rows_reductions.h"

namespace gpuopt::rows {

cudaError_t run_prod(const ReducePlan& plan, Workspace& workspace, cudaStream_t stream) {
  return with_number(plan.args.problem.dtype, [&](auto zero) {
    using T = decltype(zero);
    return run_any<T, ProdState<compute_t<T>>>(plan, workspace, stream);
  });
}

}  // namespace gpuopt::rows
