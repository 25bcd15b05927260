// The entry points of the kernels: chooses the launcher for each dtype, and instantiates the
// launchers for f32 and f64.
#include "dot/dot.h"
#include "dot/paths/dot_launch.cuh"
#include "dot/paths/dot_types.h"

namespace gpuopt::dot {
namespace {

cudaError_t dot_float(const Problem& problem, const Plan& plan, Workspace& workspace,
                      cudaStream_t stream) {
  return problem.dtype == DType::kFloat64 ? launch<double>(problem, plan, workspace, stream)
                                          : launch<float>(problem, plan, workspace, stream);
}

cudaError_t dot_atomic_float(const Problem& problem, const Plan& plan, cudaStream_t stream) {
  return problem.dtype == DType::kFloat64 ? launch_atomic<double>(problem, plan, stream)
                                          : launch_atomic<float>(problem, plan, stream);
}

cudaError_t dot_planned(const Problem& problem, const Plan& plan, Workspace& workspace,
                        cudaStream_t stream) {
  switch (problem.dtype) {
    case DType::kFloat16:
    case DType::kBFloat16:
      return dot_half(problem, plan, workspace, stream);
    case DType::kFloat32:
    case DType::kFloat64:
      return dot_float(problem, plan, workspace, stream);
    case DType::kComplex64:
    case DType::kComplex128:
      return dot_complex(problem, plan, workspace, stream);
    default:
      return dot_integer(problem, plan, workspace, stream);
  }
}

}  // namespace

cudaError_t dot(const Problem& problem, const Device& device, Workspace& workspace,
                cudaStream_t stream) {
  const Plan plan = make_plan(problem, device);
  if (plan.blocks() <= kMaxIndex32) return dot_planned(problem, plan, workspace, stream);
  Problem first, second;
  halve(problem, first, second);
  const cudaError_t error = dot(first, device, workspace, stream);
  return error != cudaSuccess ? error : dot(second, device, workspace, stream);
}

cudaError_t dot_fast_atomic(const Problem& problem, const Device& device, cudaStream_t stream) {
  const Plan plan = make_plan(problem, device, atomic_tuning());
  return size_of(problem.dtype) == 2 ? dot_atomic_half(problem, plan, stream)
                                     : dot_atomic_float(problem, plan, stream);
}

}  // namespace gpuopt::dot
