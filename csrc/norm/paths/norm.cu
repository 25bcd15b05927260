// Dispatch on the type of the input.
#include "common/types.cuh"
#include "norm/norm.h"
#include "norm/paths/norm_channels_run.cuh"
#include "norm/paths/norm_run.cuh"

namespace gpuopt::norm {

namespace {

template <typename F>
cudaError_t with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kFloat16:
      return f(__half{});
    case DType::kBFloat16:
      return f(__nv_bfloat16{});
    case DType::kFloat32:
      return f(float{});
    case DType::kFloat64:
      return f(double{});
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t launch(const ForwardPlan& plan, Workspace& workspace, cudaStream_t stream) {
  void* sums = nullptr;
  if (const auto* path = std::get_if<LongPlan<ForwardArgs>>(&plan.path)) {
    if (path->sums_bytes > 0) sums = workspace.allocate(path->sums_bytes);
  }
  return with_type(plan.dtype, [&](auto type) { return run<decltype(type)>(plan, sums, stream); });
}

cudaError_t launch(const BackwardPlan& plan, Workspace& workspace, cudaStream_t stream) {
  void *sums = nullptr, *partials = nullptr;
  if (plan.long_rows && plan.long_rows->sums_bytes > 0) {
    sums = workspace.allocate(plan.long_rows->sums_bytes);
  }
  if (plan.finish) partials = workspace.allocate(plan.finish->partials_bytes);
  return with_type(plan.dtype,
                   [&](auto type) { return run<decltype(type)>(plan, sums, partials, stream); });
}

cudaError_t launch(const ChannelForwardPlan& plan, Workspace& workspace, cudaStream_t stream) {
  void* moments = plan.merge ? workspace.allocate(plan.merge->parts_bytes) : nullptr;
  return with_type(plan.dtype,
                   [&](auto type) { return run<decltype(type)>(plan, moments, stream); });
}

cudaError_t launch(const ChannelBackwardPlan& plan, Workspace& workspace, cudaStream_t stream) {
  void *sums = nullptr, *means = nullptr;
  if (plan.sums_bytes > 0) sums = workspace.allocate(plan.sums_bytes);
  if (plan.means_bytes > 0) means = workspace.allocate(plan.means_bytes);
  return with_type(plan.dtype,
                   [&](auto type) { return run<decltype(type)>(plan, sums, means, stream); });
}

}  // namespace gpuopt::norm
