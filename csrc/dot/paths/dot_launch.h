// The launches of each element type, which dot_half.cu, dot_float.cu, dot_complex.cu and
// dot_integer.cu instantiate.
#pragma once

#include "dot/dot.h"

namespace gpuopt::dot {

// Launches one part of a plan.
template <typename T>
cudaError_t launch_part(const Plan& plan, Workspace& workspace, cudaStream_t stream);

}  // namespace gpuopt::dot
