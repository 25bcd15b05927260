// One-dimensional convolutions from C++: calls through the dispatcher, so autograd, vmap, autocast
// and tracing all see them.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <tuple>

#include "binding/op_handle.h"

namespace gpuopt {

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
GPUOPT_OP(conv1d_backward, "conv1d_backward", "",
          std::tuple<at::Tensor, at::Tensor, at::Tensor>(const at::Tensor&, const at::Tensor&,
                                                         const at::Tensor&, c10::SymIntArrayRef,
                                                         c10::SymIntArrayRef, c10::SymIntArrayRef,
                                                         c10::SymInt, std::array<bool, 3>))
GPUOPT_OP(causal_conv1d, "causal_conv1d", "",
          at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                     std::string_view))
GPUOPT_OP(causal_conv1d_update, "causal_conv1d_update", "",
          at::Tensor(const at::Tensor&, at::Tensor&, const at::Tensor&,
                     const std::optional<at::Tensor>&, std::string_view))
GPUOPT_OP(convolve, "convolve", "",
          at::Tensor(const at::Tensor&, const at::Tensor&, std::string_view))
}  // namespace ops

// The plain convolution is ops::conv1d(): gpuopt::conv1d is the room's namespace.

// The padding is one number for both ends, or one for each.
inline at::Tensor conv1d_act(const at::Tensor& input, const at::Tensor& weight,
                             const std::optional<at::Tensor>& bias, c10::SymInt stride,
                             c10::SymIntArrayRef padding, c10::SymInt dilation, c10::SymInt groups,
                             std::string_view activation) {
  return ops::conv1d_act().call(input, weight, bias, c10::SymIntArrayRef(&stride, 1), padding,
                                c10::SymIntArrayRef(&dilation, 1), std::move(groups), activation);
}
inline at::Tensor causal_conv1d(const at::Tensor& input, const at::Tensor& weight,
                                const std::optional<at::Tensor>& bias = std::nullopt,
                                std::string_view activation = "none") {
  return ops::causal_conv1d().call(input, weight, bias, activation);
}
inline at::Tensor causal_conv1d_update(const at::Tensor& input, at::Tensor& state,
                                       const at::Tensor& weight,
                                       const std::optional<at::Tensor>& bias = std::nullopt,
                                       std::string_view activation = "none") {
  return ops::causal_conv1d_update().call(input, state, weight, bias, activation);
}
inline at::Tensor convolve(const at::Tensor& a, const at::Tensor& v,
                           std::string_view mode = "full") {
  return ops::convolve().call(a, v, mode);
}

}  // namespace gpuopt
