// One-dimensional convolutions for callers in C++. Calls go through the dispatcher, so autograd,
// vmap, autocast and tracing see them.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <tuple>

#include "binding/op.h"
#include "binding/op_handle.h"

namespace gpuopt {

// One position: shifts the state and returns the output.
struct CausalConv1dUpdate {
  using Result = at::Tensor;
  static constexpr std::string_view kSchema =
      "causal_conv1d_update(Tensor input, Tensor(a!) state, Tensor weight, Tensor? bias=None, "
      "str activation=\"none\") -> Tensor";
  const at::Tensor& input;
  at::Tensor& state;
  const at::Tensor& weight;
  const std::optional<at::Tensor>& bias;
  std::string_view activation;
};

namespace ops {

GPUOPT_OP(conv1d, "conv1d", "",
          at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                     c10::SymIntArrayRef, c10::SymIntArrayRef, c10::SymIntArrayRef, c10::SymInt))
GPUOPT_OP(conv1d_padding, "conv1d", "padding",
          at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                     c10::SymIntArrayRef, std::string_view, c10::SymIntArrayRef, c10::SymInt))
GPUOPT_OP(conv1d_act, "conv1d_act", "",
          at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                     c10::SymIntArrayRef, c10::SymIntArrayRef, c10::SymIntArrayRef, c10::SymInt,
                     std::string_view))
using ConvTranspose1d = at::Tensor(const at::Tensor&, const at::Tensor&,
                                   const std::optional<at::Tensor>&, c10::SymIntArrayRef,
                                   c10::SymIntArrayRef, c10::SymIntArrayRef, c10::SymInt,
                                   c10::SymIntArrayRef);
GPUOPT_OP(conv_transpose1d, "conv_transpose1d", "", ConvTranspose1d)
using Conv1dBackward = std::tuple<at::Tensor, at::Tensor, at::Tensor>(
    const at::Tensor&, const at::Tensor&, const at::Tensor&, c10::SymIntArrayRef,
    c10::SymIntArrayRef, c10::SymIntArrayRef, c10::SymInt, std::array<bool, 3>,
    const std::optional<at::Tensor>&, std::string_view);
GPUOPT_OP(conv1d_backward, "conv1d_backward", "", Conv1dBackward)
GPUOPT_OP(conv1d_own, "_conv1d_own", "",
          at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                     c10::SymIntArrayRef, c10::SymIntArrayRef, c10::SymIntArrayRef, c10::SymInt))
GPUOPT_OP(conv_transpose1d_own, "_conv_transpose1d_own", "", ConvTranspose1d)
GPUOPT_OP(conv1d_backward_own, "_conv1d_backward_own", "", Conv1dBackward)
}  // namespace ops

}  // namespace gpuopt
