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
GPUOPT_EXPORT cudaError_t cumsum(const Plan& plan, Workspace& workspace, cudaStream_t stream);

// Writes h_t = a_t h_(t-1) + b_t, where `in` is b, `second` is a, and `initial` comes before h_0.
// If `shifted`, a_(t-1) replaces a_t, and a_(-1) is 1. All dtypes are one floating-point or complex
// dtype other than complex32.
GPUOPT_EXPORT cudaError_t linear_recurrence(const Plan& plan, bool shifted, Workspace& workspace,
                                            cudaStream_t stream);

}  // namespace gpuopt::scan
