// Selective scans of fp16. Each type has a file of its own, so that they compile in parallel.
#include "selective_scan/paths/selective_scan_launch.cuh"

namespace gpuopt::selective {

template cudaError_t run<__half>(const ForwardPlan&, cudaStream_t);
template cudaError_t run<__half>(const BackwardPlan&, cudaStream_t);

}  // namespace gpuopt::selective
