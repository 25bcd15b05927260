// One-dimensional convolutions as operators of binding/op.h.
#pragma once

#include <array>
#include <tuple>

#include "binding/op.h"
#include "binding/optional.h"

namespace gpuopt {

namespace conv1d {
struct ForwardCall;
struct BackwardCall;
}  // namespace conv1d

struct Conv1d {
  using Result = at::Tensor;
  static constexpr std::string_view kSchema =
      "conv1d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=1, "
      "SymInt[1] padding=0, SymInt[1] dilation=1, SymInt groups=1) -> Tensor";
  const at::Tensor &input, &weight;
  const TensorOption& bias;
  c10::SymIntArrayRef stride, padding, dilation;
  c10::SymInt groups;

  operator conv1d::ForwardCall() const;  // so that one kernel computes all forward operators
};

// Padding is 'valid' or 'same'.
struct Conv1dPadding {
  using Result = at::Tensor;
  static constexpr std::string_view kSchema =
      "conv1d.padding(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=1, "
      "str padding=\"valid\", SymInt[1] dilation=1, SymInt groups=1) -> Tensor";
  const at::Tensor &input, &weight;
  const TensorOption& bias;
  c10::SymIntArrayRef stride;
  std::string_view padding;
  c10::SymIntArrayRef dilation;
  c10::SymInt groups;
};

struct Conv1dAct {
  using Result = at::Tensor;
  static constexpr std::string_view kSchema =
      "conv1d_act(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=1, "
      "SymInt[2] padding=0, SymInt[1] dilation=1, SymInt groups=1, str activation=\"none\") -> "
      "Tensor";
  const at::Tensor &input, &weight;
  const TensorOption& bias;
  c10::SymIntArrayRef stride, padding, dilation;
  c10::SymInt groups;
  std::string_view activation;

  operator conv1d::ForwardCall() const;
};

struct ConvTranspose1d {
  using Result = at::Tensor;
  static constexpr std::string_view kSchema =
      "conv_transpose1d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=1, "
      "SymInt[1] padding=0, SymInt[1] output_padding=0, SymInt groups=1, SymInt[1] dilation=1) -> "
      "Tensor";
  const at::Tensor &input, &weight;
  const TensorOption& bias;
  c10::SymIntArrayRef stride, padding, output_padding;
  c10::SymInt groups;
  c10::SymIntArrayRef dilation;

  operator conv1d::ForwardCall() const;
};

struct Conv1dBackward {
  using Result = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
  static constexpr std::string_view kSchema =
      "conv1d_backward(Tensor grad_output, Tensor input, Tensor weight, SymInt[1] stride, "
      "SymInt[2] padding, SymInt[1] dilation, SymInt groups, bool[3] output_mask, "
      "Tensor? bias=None, str activation=\"none\") -> (Tensor, Tensor, Tensor)";
  const at::Tensor &grad_output, &input, &weight;
  c10::SymIntArrayRef stride, padding, dilation;
  c10::SymInt groups;
  std::array<bool, 3> output_mask;
  const TensorOption& bias;  // only for the activation's operand
  std::string_view activation;

  operator conv1d::BackwardCall() const;
};

// The results that a path of this library computes. The others, which ATen would compute, are
// undefined. On the CPU, ATen computes all of them, and Meta has all of them.
struct Conv1dByPath : Conv1d {
  static constexpr std::string_view kSchema =
      "_conv1d_own(Tensor input, Tensor weight, Tensor? bias, SymInt[1] stride, "
      "SymInt[1] padding, SymInt[1] dilation, SymInt groups) -> Tensor";
};
struct ConvTranspose1dByPath : ConvTranspose1d {
  static constexpr std::string_view kSchema =
      "_conv_transpose1d_own(Tensor input, Tensor weight, Tensor? bias, SymInt[1] stride, "
      "SymInt[1] padding, SymInt[1] output_padding, SymInt groups, SymInt[1] dilation) -> Tensor";
};
struct Conv1dBackwardByPath : Conv1dBackward {
  static constexpr std::string_view kSchema =
      "_conv1d_backward_own(Tensor grad_output, Tensor input, Tensor weight, SymInt[1] stride, "
      "SymInt[1] padding, SymInt[1] dilation, SymInt groups, bool[3] output_mask, "
      "Tensor? bias=None, str activation=\"none\") -> (Tensor, Tensor, Tensor)";
};

struct CausalConv1d {
  using Result = at::Tensor;
  static constexpr std::string_view kSchema =
      "causal_conv1d(Tensor input, Tensor weight, Tensor? bias=None, str activation=\"none\") -> "
      "Tensor";
  const at::Tensor &input, &weight;
  const TensorOption& bias;
  std::string_view activation;
};

// One position: shifts the state and returns the output.
struct CausalConv1dUpdate {
  using Result = at::Tensor;
  static constexpr std::string_view kSchema =
      "causal_conv1d_update(Tensor input, Tensor(a!) state, Tensor weight, Tensor? bias=None, "
      "str activation=\"none\") -> Tensor";
  const at::Tensor& input;
  at::Tensor& state;
  const at::Tensor& weight;
  const TensorOption& bias;
  std::string_view activation;
};

}  // namespace gpuopt
