// Starts the kernel of an input gradient that is not a forward convolution.
#include "conv1d/conv1d.h"
#include "conv1d/input_gradient/col2im.cuh"
#include "conv1d/input_gradient/general.cuh"
#include "conv1d/input_gradient/strided.cuh"

namespace gpuopt::conv1d {

cudaError_t launch(const InputGradientPath& path, DType dtype, void* to, Workspace&,
                   cudaStream_t stream) {
  return with_float(dtype, [&](auto type) {
    using T = decltype(type);
    return std::visit([&](const auto& plan) { return launch_path<T>(plan, to, stream); }, path);
  });
}

}  // namespace gpuopt::conv1d
