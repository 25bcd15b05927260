// Nearest-neighbour upsampling from C++: handles that call through the dispatcher, so autograd,
// vmap, autocast and tracing all see them.
#pragma once

#include <optional>

#include "binding/op_handle.h"

namespace gpuopt::ops {

GPUOPT_OP(upsample_nearest2d, "upsample_nearest2d", "",
          at::Tensor(const at::Tensor&, c10::SymIntArrayRef, std::optional<double>,
                     std::optional<double>))
GPUOPT_OP(upsample_nearest2d_backward, "upsample_nearest2d_backward", "",
          at::Tensor(const at::Tensor&, c10::SymIntArrayRef, c10::SymIntArrayRef,
                     std::optional<double>, std::optional<double>))
GPUOPT_OP(upsample_nearest_exact2d, "upsample_nearest_exact2d", "",
          at::Tensor(const at::Tensor&, c10::SymIntArrayRef, std::optional<double>,
                     std::optional<double>))
GPUOPT_OP(upsample_nearest_exact2d_backward, "upsample_nearest_exact2d_backward", "",
          at::Tensor(const at::Tensor&, c10::SymIntArrayRef, c10::SymIntArrayRef,
                     std::optional<double>, std::optional<double>))

}  // namespace gpuopt::ops
