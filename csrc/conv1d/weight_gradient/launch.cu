// Starts the kernels of a weight gradient.
#include "conv1d/conv1d.h"
#include "conv1d/weight_gradient/channel_tiles.cuh"
#include "conv1d/weight_gradient/channels_last.cuh"
#include "conv1d/weight_gradient/chunks.cuh"
#include "conv1d/weight_gradient/general.cuh"
#include "conv1d/weight_gradient/im2col.cuh"
#include "conv1d/weight_gradient/tap_gemm.cuh"

namespace gpuopt::conv1d {
namespace {

// Partial sums go to the workspace, and a second launch adds them up.
template <typename T, typename Plan>
cudaError_t launch_sums(const Plan& plan, void* to, Workspace& workspace, cudaStream_t stream) {
  const WeightArgs& sums = plan.args;
  if (!sums.partial) return launch_path<T>(plan, to, stream);
  const auto count = static_cast<size_t>(sums.weights) * sums.splits.divisor;
  void* const partial = workspace.allocate(count * sizeof(compute_t<T>));
  const cudaError_t error = launch_path<T>(plan, partial, stream);
  if (error != cudaSuccess) return error;
  return launch_finish(static_cast<const compute_t<T>*>(partial), static_cast<T*>(to), sums.weights,
                       /*to_bias=*/static_cast<T*>(nullptr), sums.weights, sums.splits.divisor,
                       stream);
}

template <typename T>
cudaError_t launch_sums(const AtenPlan&, void*, Workspace&, cudaStream_t) {
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t launch(const WeightGradientPath& path, DType dtype, void* to, Workspace& workspace,
                   cudaStream_t stream) {
  return with_float(dtype, [&](auto type) {
    using T = decltype(type);
    return std::visit(
        [&](const auto& plan) {
          if constexpr (requires { launch<T>(plan, to, workspace, stream); }) {
            return launch<T>(plan, to, workspace, stream);
          } else {
            return launch_sums<T>(plan, to, workspace, stream);
          }
        },
        path);
  });
}

}  // namespace gpuopt::conv1d
