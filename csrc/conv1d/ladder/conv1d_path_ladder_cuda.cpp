// The CUDA kernels of gpuopt_ladder::conv1d_paths and conv1d_path: every path can be measured
// beside the one that is chosen.
#include <torch/library.h>

#include "binding/unfilled.h"
#include "conv1d/binding/aten.h"
#include "conv1d/binding/check.h"
#include "conv1d/binding/launch.h"

namespace gpuopt::conv1d {
namespace {

using at::Tensor;

constexpr const char* kPathOp = "gpuopt_ladder::conv1d_path";

// A pass of a checked call.
struct Call {
  Problem problem;
  Pass pass = Pass::kForward;
  Sizes sizes;
};

Call make_call(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
               const OptionalTensor& grad_output, int64_t stride, int64_t padding, int64_t dilation,
               int64_t groups, std::string_view what) {
  Call call;
  const at::IntArrayRef strides(stride), paddings(padding), dilations(dilation);
  if (what == "output") {
    call.sizes = check_forward(kPathOp, input, weight, bias, strides, paddings, dilations, groups,
                               /*two_paddings=*/false);
  } else {
    TORCH_CHECK_VALUE(what == "grad_input" || what == "grad_weight", kPathOp,
                      ": what must be \"output\", \"grad_input\" or \"grad_weight\", got \"", what,
                      "\"");
    TORCH_CHECK_VALUE(grad_output.has_value(), kPathOp, ": grad_output must be given for ", what);
    call.sizes = check_backward(*grad_output, input, weight, strides, paddings, dilations, groups);
  }
  const auto dtype = input.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(
      dtype == at::kHalf || dtype == at::kBFloat16 || dtype == at::kFloat || dtype == at::kDouble,
      kPathOp, ": input must be float16, bfloat16, float32 or float64, got ", dtype);
  TORCH_CHECK(call.sizes.batch > 0 && call.sizes.in_channels > 0, kPathOp,
              ": input must not be empty, got shape ", input.sizes());
  if (what == "output") {
    call.problem = forward_problem(kPathOp, input, weight, bias, call.sizes, Activation::kNone);
  } else if (what == "grad_input") {
    call.pass = Pass::kInputGradient;
    call.problem = input_gradient_problem(kPathOp, *grad_output, weight, call.sizes);
  } else {
    call.pass = Pass::kWeightGradient;
    call.problem = weight_gradient_problem(kPathOp, *grad_output, input, weight, call.sizes);
  }
  return call;
}

std::string conv1d_paths(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                         const OptionalTensor& grad_output, int64_t stride, int64_t padding,
                         int64_t dilation, int64_t groups, std::string_view what) {
  const c10::cuda::CUDAGuard guard(input.device());
  const Call call =
      make_call(input, weight, bias, grad_output, stride, padding, dilation, groups, what);
  const std::string chosen = plan(call.problem, call.pass, this_device()).name();
  std::string names = chosen;
  for_each_path(call.problem, call.pass, this_device(), [&](const auto& path) {
    if (name_of(path) != chosen) names.append(",").append(name_of(path));
  });
  return names;
}

Tensor conv1d_path(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                   const OptionalTensor& grad_output, int64_t stride, int64_t padding,
                   int64_t dilation, int64_t groups, std::string_view what, std::string_view path) {
  const c10::cuda::CUDAGuard guard(input.device());
  const Call call =
      make_call(input, weight, bias, grad_output, stride, padding, dilation, groups, what);
  const Plan plan = plan_path(call.problem, call.pass, this_device(), path);
  TORCH_CHECK_VALUE(!plan.is_aten(), kPathOp, ": path \"", path,
                    "\" does not support this problem; see gpuopt_ladder::conv1d_paths");
  Tensor result = call.pass == Pass::kForward         ? empty_output(input, call.sizes)
                  : call.pass == Pass::kInputGradient ? empty_grad_input(input, call.sizes)
                                                      : unfilled(weight.sizes(), weight.options());
  if (result.numel() > 0) launch_plan(kPathOp, plan, result);
  return result;
}

TORCH_LIBRARY_IMPL(gpuopt_ladder, CUDA, m) {
  m.impl("conv1d_paths", conv1d_paths);
  m.impl("conv1d_path", conv1d_path);
}

}  // namespace
}  // namespace gpuopt::conv1d
