// Maxima.
#include "reduce/paths/reduce_launch.cuh"

namespace gpuopt::reduce {

cudaError_t launch_max(const Plan& plan, Workspace& memory, cudaStream_t stream) {
  const auto make_op = [&](auto zero) { return Max<decltype(zero)>(); };
  return launch_types<kExtrema>(plan, make_op, memory, stream);
}

}  // namespace gpuopt::reduce
