// The launcher of gpuopt::reduce_max.
#include "reduce/paths/reduce_extremum.cuh"

namespace gpuopt::reduce {

cudaError_t max(const Problem& problem, const Device& device, Workspace& workspace,
                cudaStream_t stream) {
  return launch_extremum<Max>(problem, device, workspace, stream);
}

}  // namespace gpuopt::reduce
