// The launchers.
#include "index_add/device/index_add_sort.cuh"
#include "segment/segment.cuh"

namespace gpuopt::segment {

cudaError_t launch(const GroupPlan& plan, Workspace& workspace, cudaStream_t stream) {
  const uint64_t* sorted = nullptr;
  const cudaError_t error = sort_index(plan.sort, nullptr, workspace, stream, &sorted);
  if (error != cudaSuccess) return error;
  if (plan.long_result) {
    return launch_kernel(take_apart<int64_t>, plan.shape, stream, plan.args, sorted);
  }
  return launch_kernel(take_apart<int32_t>, plan.shape, stream, plan.args, sorted);
}

cudaError_t launch(const OutsidePlan& plan, cudaStream_t stream) {
  switch (plan.unit_bytes) {
    case 16:
      return launch_kernel(clear_outside<uint4>, plan.shape, stream, plan.args);
    case 4:
      return launch_kernel(clear_outside<uint32_t>, plan.shape, stream, plan.args);
    default:
      return launch_kernel(clear_outside<uint8_t>, plan.shape, stream, plan.args);
  }
}

}  // namespace gpuopt::segment
