// The launcher of gpuopt::reduce_min.
#include "reduce/paths/reduce_extremum.cuh"

namespace gpuopt::reduce {

cudaError_t min(const Problem& problem, const Device& device, Workspace& workspace,
                cudaStream_t stream) {
  return launch_extremum<Min>(problem, device, workspace, stream);
}

}  // namespace gpuopt::reduce
