// Selective scans of bf16. Each type has a file of its own, so that they compile in parallel.
#include "selective_scan/paths/selective_scan_launch.cuh"

namespace gpuopt::selective {

template cudaError_t run<__nv_bfloat16>(const ForwardPlan&, cudaStream_t);
template cudaError_t run<__nv_bfloat16>(const BackwardPlan&, cudaStream_t);

}  // namespace gpuopt::selective
