// Sums and means in floating-point and complex types, and sums as bool. Also the entry point.
#include "reduce/paths/reduce_launch.cuh"

namespace gpuopt::reduce {

cudaError_t launch_sum(const Plan& plan, Workspace& memory, cudaStream_t stream) {
  const auto make_op = [&](auto zero) { return Sum<decltype(zero)>(plan.divisor); };
  return launch_types<kOtherSums>(plan, make_op, memory, stream);
}

cudaError_t launch(const Plan& plan, Workspace& workspace, cudaStream_t stream) {
  switch (plan.operation) {
    case Operation::kSum:
      return plan.types.values == DType::kInt64 ? launch_integer_sum(plan, workspace, stream)
                                                : launch_sum(plan, workspace, stream);
    case Operation::kMax:
      return launch_max(plan, workspace, stream);
    case Operation::kMin:
      return launch_min(plan, workspace, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace gpuopt::reduce
