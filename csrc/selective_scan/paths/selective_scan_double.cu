// Selective scans of f64. Each type has a file of its own, so that they compile in parallel.
#include "selective_scan/paths/selective_scan_launch.cuh"

namespace gpuopt::selective {

template cudaError_t run<double>(const ForwardPlan&, cudaStream_t);
template cudaError_t run<double>(const BackwardPlan&, cudaStream_t);

}  // namespace gpuopt::selective
