// Sums of the entries that were a maximum: its gradient.
#include "common/floats.cuh"
#include "rows/paths/rows_reduce.cuh"
#include "rows/paths/rows_reductions.h"

namespace gpuopt::rows {

cudaError_t run_selected(const ReducePlan& plan, Workspace& workspace, cudaStream_t stream) {
  return with_float(plan.args.problem.dtype, [&](auto zero) {
    using T = decltype(zero);
    using State = SumState<compute_t<T>>;
    const auto with_access = [&](auto weighted) {
      constexpr bool kWeighted = decltype(weighted)::value;
      return run<T, State>(plan.access == Access::kSpread
                               ? reduce_rows<T, State, Access::kSpread, kWeighted, true>
                               : reduce_rows<T, State, Access::kSingle, kWeighted, true>,
                           plan, workspace, stream);
    };
    return plan.args.problem.value != nullptr ? with_access(std::true_type())
                                              : with_access(std::false_type());
  });
}

}  // namespace gpuopt::rows
