// Selective scans of bf16. Each type has a file of its own, so that they compile in parallel.
#include "selective_scan/paths/selective_scan_backward.cuh"

namespace gpuopt::selective {

template cudaError_t run_forward<__nv_bfloat16>(const Problem&, Workspace&, cudaStream_t,
                                                const Tuning&);
template cudaError_t run_backward<__nv_bfloat16>(const Problem&, const Gradients&, const Device&,
                                                 Workspace&, cudaStream_t, const Tuning&);

}  // namespace gpuopt::selective
