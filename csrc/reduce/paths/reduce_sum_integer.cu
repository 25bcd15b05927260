// Sums as integers.
#include "reduce/paths/reduce_launch.cuh"

namespace gpuopt::reduce {

cudaError_t launch_integer_sum(const Plan& plan, Workspace& memory, cudaStream_t stream) {
  const auto make_op = [&](auto zero) { return Sum<decltype(zero)>(plan.divisor); };
  return launch_types<kIntegerSums>(plan, make_op, memory, stream);
}

}  // namespace gpuopt::reduce
