// The launchers for complex64 and complex128.
#include "dot/paths/dot_launch.cuh"
#include "dot/paths/dot_types.h"

namespace gpuopt::dot {

cudaError_t dot_complex(const Problem& problem, const Plan& plan, Workspace& workspace,
                        cudaStream_t stream) {
  return problem.dtype == DType::kComplex128
             ? launch<Complex<double>>(problem, plan, workspace, stream)
             : launch<Complex<float>>(problem, plan, workspace, stream);
}

}  // namespace gpuopt::dot
