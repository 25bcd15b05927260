// One-dimensional convolutions for callers in C++. Calls go through the dispatcher, so autograd,
// vmap, autocast and tracing see them.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <tuple>

#include "binding/op_handle.h"

namespace gpuopt::ops {

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
GPUOPT_OP(conv1d_own, "_conv1d_own", "",
          at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                     c10::SymIntArrayRef, c10::SymIntArrayRef, c10::SymIntArrayRef, c10::SymInt))
GPUOPT_OP(conv1d_backward_own, "_conv1d_backward_own", "",
          std::tuple<at::Tensor, at::Tensor, at::Tensor>(const at::Tensor&, const at::Tensor&,
                                                         const at::Tensor&, c10::SymIntArrayRef,
                                                         c10::SymIntArrayRef, c10::SymIntArrayRef,
                                                         c10::SymInt, std::array<bool, 3>))
GPUOPT_OP(causal_conv1d_update, "causal_conv1d_update", "",
          at::Tensor(const at::Tensor&, at::Tensor&, const at::Tensor&,
                     const std::optional<at::Tensor>&, std::string_view))

}  // namespace gpuopt::ops
