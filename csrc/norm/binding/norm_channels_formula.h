// Group and batch norm in ATen's differentiable operators.
#pragma once

#include "norm/binding/norm_channels_check.h"

namespace gpuopt::norm {

// The results of a forward pass: [samples, groups] or [channels] statistics.
struct ChannelNormal {
  Tensor out, mean, rstd, variance;
};

ChannelNormal normalized_by_aten(const GroupNormGroups& op);
ChannelNormal normalized_by_aten(const BatchNormChannels& op);

// Differentiable, from the input alone.
GroupNormGradients::Result gradients_by_aten(const GroupNormGradients& op);
BatchNormGradients::Result gradients_by_aten(const BatchNormGradients& op);
// From the statistics that are given, as the CUDA kernels compute them.
GroupNormGradients::Result gradients_on_cpu(const GroupNormGradients& op);
BatchNormGradients::Result gradients_on_cpu(const BatchNormGradients& op);

// The derivative of the result along the tangents of the inputs.
Tensor tangent_by_aten(const GroupNormGroups& op);
Tensor tangent_by_aten(const BatchNormChannels& op);

// A copy of a dense tensor, laid out as `input` is.
Tensor laid_out_as(const Tensor& tensor, const Tensor& input);

}  // namespace gpuopt::norm
