// The launchers for f16 and bf16.
#include "dot/paths/dot_launch.cuh"
#include "dot/paths/dot_types.h"

namespace gpuopt::dot {

cudaError_t dot_half(const Problem& problem, const Plan& plan, Workspace& workspace,
                     cudaStream_t stream) {
  return problem.dtype == DType::kFloat16 ? launch<__half>(problem, plan, workspace, stream)
                                          : launch<__nv_bfloat16>(problem, plan, workspace, stream);
}

cudaError_t dot_atomic_half(const Problem& problem, const Plan& plan, cudaStream_t stream) {
  return problem.dtype == DType::kFloat16 ? launch_atomic<__half>(problem, plan, stream)
                                          : launch_atomic<__nv_bfloat16>(problem, plan, stream);
}

}  // namespace gpuopt::dot
