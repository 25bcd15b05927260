// The launchers for complex64 and complex128.
#include "dot/paths/dot_launch.cuh"

namespace gpuopt::dot {

template cudaError_t launch_part<Complex<float>>(const Plan&, Workspace&, cudaStream_t);
template cudaError_t launch_part<Complex<double>>(const Plan&, Workspace&, cudaStream_t);

}  // namespace gpuopt::dot
