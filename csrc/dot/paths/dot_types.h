// Launchers that are compiled in files of their own, by element type.
#pragma once

#include "dot/dot.h"

namespace gpuopt::dot {

cudaError_t dot_half(const Problem& problem, const Plan& plan, Workspace& workspace,
                     cudaStream_t stream);
cudaError_t dot_complex(const Problem& problem, const Plan& plan, Workspace& workspace,
                        cudaStream_t stream);
cudaError_t dot_integer(const Problem& problem, const Plan& plan, Workspace& workspace,
                        cudaStream_t stream);

cudaError_t dot_atomic_half(const Problem& problem, const Plan& plan, cudaStream_t stream);

}  // namespace gpuopt::dot
