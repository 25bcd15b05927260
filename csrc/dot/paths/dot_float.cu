// The launchers for f32 and f64.
#include "dot/paths/dot_launch.cuh"

namespace gpuopt::dot {

template cudaError_t launch_part<float>(const Plan&, Workspace&, cudaStream_t);
template cudaError_t launch_part<double>(const Plan&, Workspace&, cudaStream_t);

}  // namespace gpuopt::dot
