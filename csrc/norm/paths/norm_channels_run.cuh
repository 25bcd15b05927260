// The launches of a plan of group or batch norm for one type, which each type's file instantiates.
#pragma once

#include "norm/norm_channels_plan.h"

namespace gpuopt::norm {

template <typename T>
cudaError_t run(const ChannelForwardPlan& plan, void* moments, cudaStream_t stream);
template <typename T>
cudaError_t run(const ChannelBackwardPlan& plan, void* sums, void* means, cudaStream_t stream);

}  // namespace gpuopt::norm
