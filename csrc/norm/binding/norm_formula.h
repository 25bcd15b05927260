// Norms in ATen's differentiable operators.
#pragma once

#include "norm/binding/norm_check.h"

namespace gpuopt::norm {

// The last `count` dimensions, as negative numbers.
at::DimVector last_dims(int64_t count);

// What is normalised: the sum of input and residual, if there is one.
template <typename Op>
Tensor summed(const Op& op) {
  return op.input.add(op.residual);
}

// Differentiable, from the input alone.
LayerNormGradients::Result gradients_by_aten(const LayerNormGradients& op);
RmsNormGradients::Result gradients_by_aten(const RmsNormGradients& op);
// From the statistics that are given, as the CUDA kernels compute them.
LayerNormGradients::Result gradients_on_cpu(const LayerNormGradients& op);
RmsNormGradients::Result gradients_on_cpu(const RmsNormGradients& op);

// The derivative of the result along the tangents of the inputs.
Tensor tangent_by_aten(const LayerNormRows& op);
Tensor tangent_by_aten(const RmsNormRows& op);

}  // namespace gpuopt::norm
