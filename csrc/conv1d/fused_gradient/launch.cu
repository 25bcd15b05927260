// Starts the kernels of a fused gradient.
#include "conv1d/conv1d.h"
#include "conv1d/fused_gradient/columns.cuh"
#include "conv1d/fused_gradient/rows.cuh"

namespace gpuopt::conv1d {
namespace {

template <typename T, int K>
cudaError_t launch_taps(const FusedPlan& plan, const FusedArgs& args, cudaStream_t stream) {
  constexpr int kMost = std::max<int>(kColumnBytes / sizeof(T), 1);
  const auto kernel = plan.values == 0   ? fused_rows_kernel<T, K>
                      : plan.values == 1 ? fused_columns_kernel<T, K, 1>
                                         : fused_columns_kernel<T, K, kMost>;
  return launch_kernel(kernel, plan.launch, stream, args);
}

}  // namespace

cudaError_t launch(const FusedPlan& plan, DType dtype, const FusedResults& to, Workspace& workspace,
                   cudaStream_t stream) {
  return with_float(dtype, [&](auto type) {
    using T = decltype(type);
    using C = compute_t<T>;
    FusedArgs args = plan.args;
    args.to = to.grad_input;
    const bool has_sums = to.grad_weight != nullptr || to.grad_bias != nullptr;
    const int64_t weights = int64_t{args.channels} * plan.taps, all = weights + args.channels;
    const auto count = static_cast<size_t>(all) * args.splits;
    args.sums = has_sums ? workspace.allocate(count * sizeof(C)) : nullptr;
    const cudaError_t error = plan.taps == 2   ? launch_taps<T, 2>(plan, args, stream)
                              : plan.taps == 3 ? launch_taps<T, 3>(plan, args, stream)
                                               : launch_taps<T, 4>(plan, args, stream);
    if (error != cudaSuccess || !has_sums) return error;
    return launch_finish(static_cast<const C*>(args.sums), static_cast<T*>(to.grad_weight), weights,
                         static_cast<T*>(to.grad_bias), all, args.splits, stream);
  });
}

}  // namespace gpuopt::conv1d
