// The launchers for integers.
#include "dot/paths/dot_launch.cuh"

namespace gpuopt::dot {

template cudaError_t launch_part<uint8_t>(const Plan&, Workspace&, cudaStream_t);
template cudaError_t launch_part<uint16_t>(const Plan&, Workspace&, cudaStream_t);
template cudaError_t launch_part<uint32_t>(const Plan&, Workspace&, cudaStream_t);
template cudaError_t launch_part<uint64_t>(const Plan&, Workspace&, cudaStream_t);

}  // namespace gpuopt::dot
