// One step of a causal depthwise convolution, as a convolution of what the state and the input
// hold.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string_view>

namespace gpuopt::conv1d {

// What causal_conv1d_update does, by operators that are differentiable and have batching rules.
at::Tensor update_by_convolution(const at::Tensor& input, at::Tensor& state,
                                 const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                                 std::string_view activation);

}  // namespace gpuopt::conv1d
