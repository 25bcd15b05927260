// The launchers for f16 and bf16.
#include "dot/paths/dot_launch.cuh"

namespace gpuopt::dot {

template cudaError_t launch_part<__half>(const Plan&, Workspace&, cudaStream_t);
template cudaError_t launch_part<__nv_bfloat16>(const Plan&, Workspace&, cudaStream_t);

}  // namespace gpuopt::dot
