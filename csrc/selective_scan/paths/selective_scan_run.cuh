// The entry points of each type, which selective_scan_<type>.cu instantiates.
#pragma once

#include "common/types.cuh"
#include "selective_scan/selective_scan_plan.h"

namespace gpuopt::selective {

template <typename T>
cudaError_t run_forward(const Problem& problem, Workspace& workspace, cudaStream_t stream,
                        const Tuning& tuning);
template <typename T>
cudaError_t run_backward(const Problem& problem, const Gradients& gradients, const Device& device,
                         Workspace& workspace, cudaStream_t stream, const Tuning& tuning);

}  // namespace gpuopt::selective
