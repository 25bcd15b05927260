// A checked call of gpuopt_ladder::conv1d_paths or conv1d_path.
#pragma once

#include "conv1d/binding/problem.h"
#include "conv1d/policy.h"

namespace gpuopt::conv1d {

struct PathCall {
  Problem problem;
  Pass pass = Pass::kForward;
  Sizes sizes;

  PathCall(const char* op, const at::Tensor& input, const at::Tensor& weight,
           const TensorOption& bias, const TensorOption& grad_output, int64_t stride,
           int64_t padding, int64_t dilation, int64_t groups, std::string_view what) {
    TORCH_CHECK_VALUE(what == "output" || what == "grad_input" || what == "grad_weight", op,
                      ": what must be \"output\", \"grad_input\" or \"grad_weight\", got \"", what,
                      "\"");
    const SymInt strides = stride, paddings = padding, dilations = dilation;
    const Geometry geometry{strides, paddings, dilations, groups};
    const ForwardCall forward{op, /*two_paddings=*/false, input, weight, bias, geometry};
    const at::Tensor grad = value_or_undefined(grad_output);
    const BackwardCall backward{op, grad, input, weight, geometry, {}, {}, Activation::kNone};
    if (what == "output") {
      sizes = concrete(check_forward(forward));
    } else {
      TORCH_CHECK_VALUE(grad.defined(), op, ": grad_output must be given for ", what);
      pass = what == "grad_input" ? Pass::kInputGradient : Pass::kWeightGradient;
      sizes = concrete(check_backward(backward));
    }
    const auto dtype = input.scalar_type();
    TORCH_CHECK_NOT_IMPLEMENTED(is_real_float(dtype), op,
                                ": input must be float16, bfloat16, float32 or float64, got ",
                                dtype);
    TORCH_CHECK(sizes.batch > 0 && sizes.in_channels > 0, op,
                ": input must not be empty, got shape ", input.sizes());
    problem = pass == Pass::kForward ? forward_problem(forward, sizes)
                                     : gradient_problem(backward, sizes, pass);
    TORCH_CHECK_VALUE(!needs_split(problem, pass), op,
                      ": the result must fit into one launch: expected at most ", kLaunchOutputs,
                      " values, got an input of shape ", input.sizes(), " and a weight of shape ",
                      weight.sizes());
  }
};

}  // namespace gpuopt::conv1d
