// The arguments of a convolution as one struct, and the registration of kernels that take this
// struct.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <algorithm>

#include "conv1d/binding/ops.h"
#include "conv1d/problem.h"

namespace gpuopt::conv1d {

using at::Tensor;
using c10::DispatchKeySet;
using c10::SymInt;
using c10::SymIntArrayRef;

using OptionalTensor = std::optional<Tensor>;
using Mask = std::array<bool, 3>;  // which gradients to compute: of input, weight and bias
using Gradients = std::tuple<Tensor, Tensor, Tensor>;

constexpr const char* kUpdateOp = "gpuopt::causal_conv1d_update";

// In the order of Activation.
constexpr std::array<std::string_view, 4> kActivations{"none", "relu", "silu", "gelu"};

inline bool is_given(const OptionalTensor& tensor) {
  return tensor.has_value() && tensor->defined();
}
inline Tensor value_or_undefined(const OptionalTensor& tensor) {
  return tensor.has_value() ? *tensor : Tensor();
}
inline OptionalTensor if_defined(const Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
}

inline Activation to_activation(const char* op, std::string_view name) {
  const auto found = std::find(kActivations.begin(), kActivations.end(), name);
  TORCH_CHECK(found != kActivations.end(), op, ": activation must be known: expected 'none', ",
              "'relu', 'silu' or 'gelu', got '", name, "'");
  return static_cast<Activation>(found - kActivations.begin());
}

// How taps lie on the input. A geometry only refers to its numbers and must not outlive them.
struct Geometry {
  Geometry with_groups(SymInt other) const {
    return {stride, padding, dilation, std::move(other), transposed, output_padding};
  }

  Tensor convolve(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                  Activation activation = Activation::kNone) const {
    if (transposed) {
      return ops::conv_transpose1d().call(input, weight, bias, stride, padding, output_padding,
                                          groups, dilation);
    }
    return ops::conv1d_act().call(input, weight, bias, stride, padding, dilation, groups,
                                  kActivations[static_cast<size_t>(activation)]);
  }
  // Not of a transposed convolution.
  Gradients backward(const Tensor& grad, const Tensor& input, const Tensor& weight, Mask mask,
                     const OptionalTensor& bias = std::nullopt,
                     Activation activation = Activation::kNone) const {
    return ops::conv1d_backward().call(grad, input, weight, stride, padding, dilation, groups, mask,
                                       bias, kActivations[static_cast<size_t>(activation)]);
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
  const OptionalTensor& bias;
  Geometry geometry;
  Activation activation = Activation::kNone;
  DispatchKeySet keys = {};

  // Returns invoke(operator, arguments...) for the operator that was called, with these operands.
  template <typename Invoke>
  Tensor again(Invoke invoke, const Tensor& x, const Tensor& w, const OptionalTensor& b) const {
    const auto& [stride, padding, dilation, groups, transposed, output_padding] = geometry;
    if (transposed) {
      return invoke(ops::conv_transpose1d(), x, w, b, stride, padding, output_padding, groups,
                    dilation);
    }
    if (!two_paddings) return invoke(ops::conv1d(), x, w, b, stride, padding, dilation, groups);
    return invoke(ops::conv1d_act(), x, w, b, stride, padding, dilation, groups,
                  kActivations[static_cast<size_t>(activation)]);
  }
};

struct BackwardCall {
  static constexpr const char* op = "gpuopt::conv1d_backward";
  const Tensor& grad_output;
  const Tensor& input;
  const Tensor& weight;
  Geometry geometry;
  Mask mask = {};
  OptionalTensor bias = {};  // only for the activation's operand
  Activation activation = Activation::kNone;
  DispatchKeySet keys = {};
};

// ---------------------------------------------------------------- kernels of one dispatch key

// A kernel is a function of a ForwardCall, for all three operators, or of a BackwardCall.

template <auto kernel>
Tensor conv1d_kernel(DispatchKeySet keys, const Tensor& input, const Tensor& weight,
                     const OptionalTensor& bias, SymIntArrayRef stride, SymIntArrayRef padding,
                     SymIntArrayRef dilation, SymInt groups) {
  return kernel(ForwardCall{"gpuopt::conv1d", /*two_paddings=*/false, input, weight, bias,
                            Geometry{stride, padding, dilation, std::move(groups)},
                            Activation::kNone, keys});
}

template <auto kernel>
Tensor conv1d_act_kernel(DispatchKeySet keys, const Tensor& input, const Tensor& weight,
                         const OptionalTensor& bias, SymIntArrayRef stride, SymIntArrayRef padding,
                         SymIntArrayRef dilation, SymInt groups, std::string_view activation) {
  constexpr const char* op = "gpuopt::conv1d_act";
  return kernel(ForwardCall{op, /*two_paddings=*/true, input, weight, bias,
                            Geometry{stride, padding, dilation, std::move(groups)},
                            to_activation(op, activation), keys});
}

template <auto kernel>
Tensor conv_transpose1d_kernel(DispatchKeySet keys, const Tensor& input, const Tensor& weight,
                               const OptionalTensor& bias, SymIntArrayRef stride,
                               SymIntArrayRef padding, SymIntArrayRef output_padding, SymInt groups,
                               SymIntArrayRef dilation) {
  return kernel(ForwardCall{"gpuopt::conv_transpose1d", /*two_paddings=*/false, input, weight, bias,
                            Geometry{stride, padding, dilation, std::move(groups),
                                     /*transposed=*/true, output_padding},
                            Activation::kNone, keys});
}

template <auto kernel>
Gradients conv1d_backward_kernel(DispatchKeySet keys, const Tensor& grad_output,
                                 const Tensor& input, const Tensor& weight, SymIntArrayRef stride,
                                 SymIntArrayRef padding, SymIntArrayRef dilation, SymInt groups,
                                 Mask mask, const OptionalTensor& bias,
                                 std::string_view activation) {
  return kernel(BackwardCall{grad_output, input, weight,
                             Geometry{stride, padding, dilation, std::move(groups)}, mask, bias,
                             to_activation(BackwardCall::op, activation), keys});
}

template <auto kernel>
void register_forward(torch::Library& m) {
  m.impl("conv1d", conv1d_kernel<kernel>);
  m.impl("conv1d_act", conv1d_act_kernel<kernel>);
  m.impl("conv_transpose1d", conv_transpose1d_kernel<kernel>);
}

template <auto forward, auto backward>
void register_kernels(torch::Library& m) {
  register_forward<forward>(m);
  m.impl("conv1d_backward", conv1d_backward_kernel<backward>);
}

template <auto forward, auto backward>
void register_own(torch::Library& m) {
  m.impl("_conv1d_own", conv1d_kernel<forward>);
  m.impl("_conv_transpose1d_own", conv_transpose1d_kernel<forward>);
  m.impl("_conv1d_backward_own", conv1d_backward_kernel<backward>);
}

}  // namespace gpuopt::conv1d
