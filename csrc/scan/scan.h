// Scans of strided tensors: the contract between bindings and kernels. Launchers enqueue work on
// `stream` of the current device and never synchronise.
#pragma once

#include <cuda_runtime_api.h>

#include "common/export.h"
#include "common/workspace.h"
#include "scan/scan_plan.h"

namespace gpuopt::scan {

// Writes sums of the values up to each position of the scanned dimension. The result's dtype must
// be neither bool nor complex32.
GPUOPT_EXPORT cudaError_t cumsum(const Problem& problem, Workspace& workspace, cudaStream_t stream);

}  // namespace gpuopt::scan
