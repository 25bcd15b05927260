// The launches of a plan for one type, which each type's file instantiates.
#pragma once

#include "norm/norm_plan.h"

namespace gpuopt::norm {

// `sums` are of the parts of long rows.
template <typename T>
cudaError_t run(const ForwardPlan& plan, void* sums, cudaStream_t stream);
template <typename T>
cudaError_t run(const BackwardPlan& plan, void* sums, void* partials, cudaStream_t stream);

}  // namespace gpuopt::norm
