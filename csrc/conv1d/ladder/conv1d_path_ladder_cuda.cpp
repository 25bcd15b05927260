// The CUDA kernel of gpuopt_ladder::conv1d_path.
#include <torch/library.h>

#include "binding/unfilled.h"
#include "conv1d/binding/aten.h"
#include "conv1d/binding/launch.h"
#include "conv1d/binding/rows.h"
#include "conv1d/ladder/path_call.h"

namespace gpuopt::conv1d {
namespace {

using at::Tensor;

constexpr const char* kPathOp = "gpuopt_ladder::conv1d_path";

Tensor conv1d_path(const Tensor& input, const Tensor& weight, const TensorOption& bias,
                   const TensorOption& grad_output, int64_t stride, int64_t padding,
                   int64_t dilation, int64_t groups, std::string_view what, std::string_view path) {
  const c10::cuda::CUDAGuard guard(input.device());
  const auto run = [&](const PathCall& call, const Plan& chosen) {
    Tensor result = empty_result(call.pass, input, weight, call.sizes);
    if (result.numel() > 0) launch_plan(kPathOp, chosen, result);
    return result;
  };
  const PathCall call(kPathOp, input, weight, bias, grad_output, stride, padding, dilation, groups,
                      what);
  const Plan chosen = plan_path(call.problem, call.pass, current_device(), path);
  TORCH_CHECK_VALUE(!chosen.is_aten(), kPathOp, ": path \"", path,
                    "\" does not support this problem; see gpuopt_ladder::conv1d_paths");
  if (!chosen.through_rows) return run(call, chosen);
  // An input gradient uses the layout of the input alone.
  const Tensor rows = call.pass == Pass::kInputGradient ? unfilled(input.sizes(), input.options())
                                                        : in_rows(input, call.sizes);
  TensorOption grad_rows;
  if (is_given(grad_output)) grad_rows = in_rows(*grad_output, call.sizes);
  const PathCall of_rows(kPathOp, rows, weight, bias, grad_rows, stride, padding, dilation, groups,
                         what);
  const Tensor result = run(of_rows, plan(of_rows.problem, of_rows.pass, current_device()));
  return call.pass == Pass::kWeightGradient ? result : from_rows(result, call.sizes);
}

TORCH_LIBRARY_IMPL(gpuopt_ladder, CUDA, m) { m.impl("conv1d_path", conv1d_path); }

}  // namespace
}  // namespace gpuopt::conv1d
