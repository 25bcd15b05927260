// Launches the kernel that a plan names.
#include "index_select/index_select.cuh"

namespace gpuopt::index_select {

namespace {

template <typename U>
cudaError_t launch_accesses(const Plan& plan, cudaStream_t stream) {
  return plan.thread_accesses == 1
             ? launch_kernel(gather<U, 1>, plan.shape, stream, plan.args)
             : launch_kernel(gather<U, kGatherUnroll>, plan.shape, stream, plan.args);
}

}  // namespace

cudaError_t launch(const Plan& plan, cudaStream_t stream) {
  if (plan.anywhere) return launch_kernel(gather_anywhere, plan.shape, stream, plan.args);
  switch (plan.access_bytes) {
    case 16:
      return launch_accesses<uint4>(plan, stream);
    case 8:
      return launch_accesses<uint2>(plan, stream);
    case 4:
      return launch_accesses<uint32_t>(plan, stream);
    case 2:
      return launch_accesses<uint16_t>(plan, stream);
    default:
      return launch_accesses<uint8_t>(plan, stream);
  }
}

}  // namespace gpuopt::index_select
