// A checked call of gpuopt_ladder::conv1d_paths or conv1d_path.
#pragma once

#include "conv1d/binding/problem.h"

namespace gpuopt::conv1d {

struct PathCall {
  Problem problem;
  Pass pass = Pass::kForward;
  Sizes sizes;

  PathCall(const char* op, const at::Tensor& input, const at::Tensor& weight,
           const OptionalTensor& bias, const OptionalTensor& grad_output, int64_t stride,
           int64_t padding, int64_t dilation, int64_t groups, std::string_view what) {
    TORCH_CHECK_VALUE(what == "output" || what == "grad_input" || what == "grad_weight", op,
                      ": what must be \"output\", \"grad_input\" or \"grad_weight\", got \"", what,
                      "\"");
    const at::IntArrayRef strides(stride), paddings(padding), dilations(dilation);
    if (what == "output") {
      sizes = check_forward(op, input, weight, bias, strides, paddings, dilations, groups,
                            /*two_paddings=*/false);
    } else {
      TORCH_CHECK_VALUE(grad_output.has_value(), op, ": grad_output must be given for ", what);
      sizes = check_backward(*grad_output, input, weight, strides, paddings, dilations, groups);
    }
    const auto dtype = input.scalar_type();
    TORCH_CHECK_NOT_IMPLEMENTED(
        dtype == at::kHalf || dtype == at::kBFloat16 || dtype == at::kFloat || dtype == at::kDouble,
        op, ": input must be float16, bfloat16, float32 or float64, got ", dtype);
    TORCH_CHECK(sizes.batch > 0 && sizes.in_channels > 0, op,
                ": input must not be empty, got shape ", input.sizes());
    if (what == "output") {
      problem = forward_problem(op, input, weight, bias, sizes, Activation::kNone);
    } else if (what == "grad_input") {
      pass = Pass::kInputGradient;
      problem = input_gradient_problem(op, *grad_output, weight, sizes);
    } else {
      pass = Pass::kWeightGradient;
      problem = weight_gradient_problem(op, *grad_output, input, weight, sizes);
    }
  }
};

}  // namespace gpuopt::conv1d
