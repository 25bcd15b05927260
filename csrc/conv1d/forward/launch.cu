// Starts the kernel of a forward plan.
#include "conv1d/conv1d.h"
#include "conv1d/forward/channel_tiles.cuh"
#include "conv1d/forward/channels_last.cuh"
#include "conv1d/forward/expand.cuh"
#include "conv1d/forward/expand_mma.cuh"
#include "conv1d/forward/general.cuh"
#include "conv1d/forward/implicit_gemm.cuh"
#include "conv1d/forward/polyphase.cuh"
#include "conv1d/forward/sliding.cuh"
#include "conv1d/forward/small.cuh"
#include "conv1d/forward/strided.cuh"
#include "conv1d/forward/tap_gemm.cuh"
#include "conv1d/forward/toeplitz.cuh"
#include "conv1d/forward/update.cuh"

namespace gpuopt::conv1d {

cudaError_t launch(const ForwardPath& path, DType dtype, void* to, Workspace& workspace,
                   cudaStream_t stream) {
  return with_float(dtype, [&](auto type) {
    using T = decltype(type);
    return std::visit(
        [&](const auto& plan) {
          if constexpr (requires { launch<T>(plan, to, workspace, stream); }) {
            return launch<T>(plan, to, workspace, stream);
          } else {
            return launch_path<T>(plan, to, stream);
          }
        },
        path);
  });
}

cudaError_t update(const UpdateProblem& p, cudaStream_t stream) {
  const LaunchShape shape =
      launch_shape(ceil_div<int64_t>(p.batch * p.channels, kThreads), kThreads);
  return with_float(p.dtype, [&](auto type) {
    return launch_kernel(update_kernel<decltype(type)>, shape, stream, p);
  });
}

}  // namespace gpuopt::conv1d
