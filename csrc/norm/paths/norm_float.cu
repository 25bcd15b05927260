// Norms of float32. Each type has a file of its own, so that they compile in parallel.
#include "norm/paths/norm_launch.cuh"

namespace gpuopt::norm {

template cudaError_t run<float>(const ForwardPlan&, void*, cudaStream_t);
template cudaError_t run<float>(const BackwardPlan&, void*, void*, cudaStream_t);

}  // namespace gpuopt::norm
