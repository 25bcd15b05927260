// Selective scans: chooses the type whose kernels run.
#include "selective_scan/paths/selective_scan_run.cuh"

namespace gpuopt::selective {

cudaError_t forward(const Problem& problem, Workspace& workspace, cudaStream_t stream) {
  switch (problem.dtype) {
    case DType::kFloat16:
      return run_forward<__half>(problem, workspace, stream, {});
    case DType::kBFloat16:
      return run_forward<__nv_bfloat16>(problem, workspace, stream, {});
    case DType::kFloat32:
      return run_forward<float>(problem, workspace, stream, {});
    case DType::kFloat64:
      return run_forward<double>(problem, workspace, stream, {});
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t backward(const Problem& problem, const Gradients& gradients, const Device& device,
                     Workspace& workspace, cudaStream_t stream) {
  switch (problem.dtype) {
    case DType::kFloat16:
      return run_backward<__half>(problem, gradients, device, workspace, stream, {});
    case DType::kBFloat16:
      return run_backward<__nv_bfloat16>(problem, gradients, device, workspace, stream, {});
    case DType::kFloat32:
      return run_backward<float>(problem, gradients, device, workspace, stream, {});
    case DType::kFloat64:
      return run_backward<double>(problem, gradients, device, workspace, stream, {});
    default:
      return cudaErrorInvalidValue;
  }
}

Parts parts(const Problem& problem, const Device& device) {
  const Plan plan = plan_backward(problem, device);
  return {problem.batch * plan.segments, plan.parts};
}

}  // namespace gpuopt::selective
