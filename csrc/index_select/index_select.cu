// Launches the kernel for the width of access that a plan names.
#include "index_select/index_select.cuh"

namespace gpuopt::index_select {

cudaError_t launch(const Plan& plan, cudaStream_t stream) {
  switch (plan.unit_bytes) {
    case 16:
      return launch_kernel(gather<uint4>, plan.shape, stream, plan.args);
    case 8:
      return launch_kernel(gather<uint2>, plan.shape, stream, plan.args);
    case 4:
      return launch_kernel(gather<uint32_t>, plan.shape, stream, plan.args);
    case 2:
      return launch_kernel(gather<uint16_t>, plan.shape, stream, plan.args);
    default:
      return launch_kernel(gather<uint8_t>, plan.shape, stream, plan.args);
  }
}

}  // namespace gpuopt::index_select
