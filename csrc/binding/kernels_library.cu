#include <cuda_runtime_api.h>

#include "binding/kernels_library.h"

namespace gpuopt {

const char* compiled_architectures() { return GPUOPT_CUDA_ARCHS; }

void clear_launch_error() { (void)cudaGetLastError(); }

}  // namespace gpuopt
