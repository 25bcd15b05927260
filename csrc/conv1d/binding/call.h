// The arguments of the convolutions as kernels take them.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "binding/activation.h"
#include "conv1d/binding/ops.h"
#include "conv1d/problem.h"

namespace gpuopt::conv1d {

using at::Tensor;
using c10::DispatchKeySet;
using c10::SymInt;
using c10::SymIntArrayRef;

using Mask = std::array<bool, 3>;  // which gradients to compute: of input, weight and bias
using Gradients = std::tuple<Tensor, Tensor, Tensor>;

constexpr const char* kUpdateOp = "gpuopt::causal_conv1d_update";

// How taps lie on the input. A geometry only refers to its numbers and must not outlive them.
struct Geometry {
  Geometry with_groups(SymInt other) const {
    return {stride, padding, dilation, std::move(other), transposed, output_padding};
  }

  Tensor convolve(const Tensor& input, const Tensor& weight, const TensorOption& bias,
                  Activation activation = Activation::kNone) const {
    if (transposed) {
      return call(
          ConvTranspose1d{input, weight, bias, stride, padding, output_padding, groups, dilation});
    }
    return call(Conv1dAct{input, weight, bias, stride, padding, dilation, groups,
                          kActivations[static_cast<size_t>(activation)]});
  }
  // Not of a transposed convolution.
  Gradients backward(const Tensor& grad, const Tensor& input, const Tensor& weight, Mask mask,
                     const TensorOption& bias = std::nullopt,
                     Activation activation = Activation::kNone) const {
    return call(Conv1dBackward{grad, input, weight, stride, padding, dilation, groups, mask, bias,
                               kActivations[static_cast<size_t>(activation)]});
  }

  SymIntArrayRef stride, padding, dilation;
  SymInt groups;
  bool transposed = false;
  SymIntArrayRef output_padding = {};  // of a transposed convolution
};

// A call of conv1d, conv1d_act or conv_transpose1d.
struct ForwardCall {
  const char* op;
  bool two_paddings;  // conv1d_act: there may be a padding for each end
  const Tensor& input;
  const Tensor& weight;
  const TensorOption& bias;
  Geometry geometry;
  Activation activation = Activation::kNone;
};

// A call of conv1d_backward.
struct BackwardCall {
  const char* op;
  const Tensor& grad_output;
  const Tensor& input;
  const Tensor& weight;
  Geometry geometry;
  Mask mask;
  const TensorOption& bias;
  Activation activation;

  ForwardCall forward() const {
    return {op, /*two_paddings=*/true, input, weight, bias, geometry, activation};
  }
};

}  // namespace gpuopt::conv1d

namespace gpuopt {

inline Conv1d::operator conv1d::ForwardCall() const {
  return {name_of<Conv1d>(),
          /*two_paddings=*/false, input, weight, bias, {stride, padding, dilation, groups}};
}
inline Conv1dAct::operator conv1d::ForwardCall() const {
  return {name_of<Conv1dAct>(),
          /*two_paddings=*/true,
          input,
          weight,
          bias,
          {stride, padding, dilation, groups},
          to_activation(name_of<Conv1dAct>(), activation)};
}
inline ConvTranspose1d::operator conv1d::ForwardCall() const {
  return {name_of<ConvTranspose1d>(),
          /*two_paddings=*/false,
          input,
          weight,
          bias,
          {stride, padding, dilation, groups, /*transposed=*/true, output_padding}};
}
inline Conv1dBackward::operator conv1d::BackwardCall() const {
  return {name_of<Conv1dBackward>(),
          grad_output,
          input,
          weight,
          {stride, padding, dilation, groups},
          output_mask,
          bias,
          to_activation(name_of<Conv1dBackward>(), activation)};
}

}  // namespace gpuopt
