// The arguments of the convolutions, and kernels that take them as one.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <torch/library.h>

#include "conv1d/binding/ops.h"
#include "conv1d/problem.h"

namespace gpuopt::conv1d {

using OptionalTensor = std::optional<at::Tensor>;
using Mask = std::array<bool, 3>;  // which gradients are computed: input's, weight's, the bias's
using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

constexpr const char* kBackwardOp = "gpuopt::conv1d_backward";
constexpr std::array<std::string_view, 4> kActivations{"none", "relu", "silu", "gelu"};

inline bool is_given(const OptionalTensor& tensor) {
  return tensor.has_value() && tensor->defined();
}
inline at::Tensor value_or_undefined(const OptionalTensor& tensor) {
  return tensor.has_value() ? *tensor : at::Tensor();
}
inline OptionalTensor if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
}

inline Activation to_activation(const char* op, std::string_view name) {
  const auto found = std::find(kActivations.begin(), kActivations.end(), name);
  TORCH_CHECK(found != kActivations.end(), op, ": activation must be known: expected 'none', ",
              "'relu', 'silu' or 'gelu', got '", name, "'");
  return static_cast<Activation>(found - kActivations.begin());
}

// How taps lie on the input. It owns its numbers, because autograd nodes keep it.
struct Geometry {
  using Numbers = c10::SmallVector<c10::SymInt, 2>;

  Geometry(c10::SymIntArrayRef stride_, c10::SymIntArrayRef padding_, c10::SymIntArrayRef dilation_,
           c10::SymInt groups_)
      : stride(stride_), padding(padding_), dilation(dilation_), groups(std::move(groups_)) {}

  Geometry with_groups(c10::SymInt other) const {
    return Geometry(stride, padding, dilation, std::move(other));
  }

  at::Tensor convolve(const at::Tensor& input, const at::Tensor& weight, const OptionalTensor& bias,
                      Activation activation = Activation::kNone) const {
    return ops::conv1d_act().call(input, weight, bias, stride, padding, dilation, groups,
                                  kActivations[static_cast<size_t>(activation)]);
  }
  Gradients backward(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight,
                     Mask mask) const {
    return ops::conv1d_backward().call(grad, input, weight, stride, padding, dilation, groups,
                                       mask);
  }

  Numbers stride, padding, dilation;
  c10::SymInt groups;
};

// A call of conv1d or conv1d_act.
struct ForwardCall {
  const char* op;
  bool two_paddings;  // whether there may be a padding for each end, as for conv1d_act
  const at::Tensor& input;
  const at::Tensor& weight;
  const OptionalTensor& bias;
  Geometry geometry;
  Activation activation = Activation::kNone;
  c10::DispatchKeySet keys = {};

  // invoke(operator, arguments...) with other operands.
  template <typename Invoke>
  at::Tensor again(Invoke invoke, const at::Tensor& x, const at::Tensor& w,
                   const OptionalTensor& b) const {
    const auto& [stride, padding, dilation, groups] = geometry;
    if (!two_paddings) return invoke(ops::conv1d(), x, w, b, stride, padding, dilation, groups);
    return invoke(ops::conv1d_act(), x, w, b, stride, padding, dilation, groups,
                  kActivations[static_cast<size_t>(activation)]);
  }
};

struct BackwardCall {
  const at::Tensor& grad_output;
  const at::Tensor& input;
  const at::Tensor& weight;
  Geometry geometry;
  Mask mask = {};
  c10::DispatchKeySet keys = {};
};

// ---------------------------------------------------------------- kernels of one dispatch key

template <auto kernel>
at::Tensor conv1d_kernel(c10::DispatchKeySet keys, const at::Tensor& input,
                         const at::Tensor& weight, const OptionalTensor& bias,
                         c10::SymIntArrayRef stride, c10::SymIntArrayRef padding,
                         c10::SymIntArrayRef dilation, c10::SymInt groups) {
  return kernel(ForwardCall{"gpuopt::conv1d", /*two_paddings=*/false, input, weight, bias,
                            Geometry(stride, padding, dilation, std::move(groups)),
                            Activation::kNone, keys});
}

template <auto kernel>
at::Tensor conv1d_act_kernel(c10::DispatchKeySet keys, const at::Tensor& input,
                             const at::Tensor& weight, const OptionalTensor& bias,
                             c10::SymIntArrayRef stride, c10::SymIntArrayRef padding,
                             c10::SymIntArrayRef dilation, c10::SymInt groups,
                             std::string_view activation) {
  constexpr const char* op = "gpuopt::conv1d_act";
  return kernel(ForwardCall{op, /*two_paddings=*/true, input, weight, bias,
                            Geometry(stride, padding, dilation, std::move(groups)),
                            to_activation(op, activation), keys});
}

template <auto kernel>
Gradients conv1d_backward_kernel(c10::DispatchKeySet keys, const at::Tensor& grad_output,
                                 const at::Tensor& input, const at::Tensor& weight,
                                 c10::SymIntArrayRef stride, c10::SymIntArrayRef padding,
                                 c10::SymIntArrayRef dilation, c10::SymInt groups, Mask mask) {
  return kernel(BackwardCall{grad_output, input, weight,
                             Geometry(stride, padding, dilation, std::move(groups)), mask, keys});
}

template <auto kernel>
void register_forward(torch::Library& m) {
  m.impl("conv1d", conv1d_kernel<kernel>);
  m.impl("conv1d_act", conv1d_act_kernel<kernel>);
}

template <auto kernel>
void register_backward(torch::Library& m) {
  m.impl("conv1d_backward", conv1d_backward_kernel<kernel>);
}

}  // namespace gpuopt::conv1d
