// Group and batch norm of bfloat16. Each type has a file of its own, so that they compile in
// parallel.
#include "norm/paths/norm_channels_launch.cuh"

namespace gpuopt::norm {

template cudaError_t run<__nv_bfloat16>(const ChannelForwardPlan&, void*, cudaStream_t);
template cudaError_t run<__nv_bfloat16>(const ChannelBackwardPlan&, void*, void*, cudaStream_t);

}  // namespace gpuopt::norm
