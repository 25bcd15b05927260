// The launcher.
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

}  // namespace gpuopt::segment
