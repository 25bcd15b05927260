// What the bindings ask the kernels library about itself. The library links its own CUDA runtime
// statically, so it works beside the runtime that torch loads.
#pragma once

#include "common/export.h"

namespace gpuopt {

// The compute capabilities that kernels are compiled for, as in "8.0, 9.0, 12.0+PTX".
GPUOPT_EXPORT const char* compiled_architectures();

// A launch that fails leaves its error in the library's runtime, where the next launch would find
// it. Call this once the error is reported.
GPUOPT_EXPORT void clear_launch_error();

}  // namespace gpuopt
