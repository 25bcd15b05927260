// The launches of each type, which selective_scan_<type>.cu instantiates.
#pragma once

#include "selective_scan/selective_scan.h"

namespace gpuopt::selective {

template <typename T>
cudaError_t run(const ForwardPlan& plan, cudaStream_t stream);
template <typename T>
cudaError_t run(const BackwardPlan& plan, cudaStream_t stream);

}  // namespace gpuopt::selective
