// Nearest-neighbour upsampling from C++: calls through the dispatcher, so autograd, vmap, autocast
// and tracing all see them.
#pragma once

#include <optional>

#include "binding/op_handle.h"

namespace gpuopt {

namespace ops {
GPUOPT_OP(upsample_nearest2d, "upsample_nearest2d", "",
          at::Tensor(const at::Tensor&, c10::SymIntArrayRef, std::optional<double>,
                     std::optional<double>))
GPUOPT_OP(upsample_nearest2d_vec, "upsample_nearest2d", "vec",
          at::Tensor(const at::Tensor&, at::OptionalSymIntArrayRef,
                     std::optional<c10::ArrayRef<double>>))
GPUOPT_OP(upsample_nearest2d_backward, "upsample_nearest2d_backward", "",
          at::Tensor(const at::Tensor&, c10::SymIntArrayRef, c10::SymIntArrayRef,
                     std::optional<double>, std::optional<double>))
GPUOPT_OP(upsample_nearest_exact2d, "upsample_nearest_exact2d", "",
          at::Tensor(const at::Tensor&, c10::SymIntArrayRef, std::optional<double>,
                     std::optional<double>))
GPUOPT_OP(upsample_nearest_exact2d_vec, "upsample_nearest_exact2d", "vec",
          at::Tensor(const at::Tensor&, at::OptionalSymIntArrayRef,
                     std::optional<c10::ArrayRef<double>>))
GPUOPT_OP(upsample_nearest_exact2d_backward, "upsample_nearest_exact2d_backward", "",
          at::Tensor(const at::Tensor&, c10::SymIntArrayRef, c10::SymIntArrayRef,
                     std::optional<double>, std::optional<double>))
}  // namespace ops

inline at::Tensor upsample_nearest2d(const at::Tensor& self, c10::SymIntArrayRef output_size,
                                     std::optional<double> scales_h = std::nullopt,
                                     std::optional<double> scales_w = std::nullopt) {
  return ops::upsample_nearest2d().call(self, output_size, scales_h, scales_w);
}
inline at::Tensor upsample_nearest2d_vec(const at::Tensor& input,
                                         at::OptionalSymIntArrayRef output_size,
                                         std::optional<c10::ArrayRef<double>> scale_factors) {
  return ops::upsample_nearest2d_vec().call(input, output_size, scale_factors);
}
inline at::Tensor upsample_nearest2d_backward(const at::Tensor& grad_output,
                                              c10::SymIntArrayRef output_size,
                                              c10::SymIntArrayRef input_size,
                                              std::optional<double> scales_h = std::nullopt,
                                              std::optional<double> scales_w = std::nullopt) {
  return ops::upsample_nearest2d_backward().call(grad_output, output_size, input_size, scales_h,
                                                 scales_w);
}
inline at::Tensor upsample_nearest_exact2d(const at::Tensor& self, c10::SymIntArrayRef output_size,
                                           std::optional<double> scales_h = std::nullopt,
                                           std::optional<double> scales_w = std::nullopt) {
  return ops::upsample_nearest_exact2d().call(self, output_size, scales_h, scales_w);
}
inline at::Tensor upsample_nearest_exact2d_vec(const at::Tensor& input,
                                               at::OptionalSymIntArrayRef output_size,
                                               std::optional<c10::ArrayRef<double>> scale_factors) {
  return ops::upsample_nearest_exact2d_vec().call(input, output_size, scale_factors);
}
inline at::Tensor upsample_nearest_exact2d_backward(const at::Tensor& grad_output,
                                                    c10::SymIntArrayRef output_size,
                                                    c10::SymIntArrayRef input_size,
                                                    std::optional<double> scales_h = std::nullopt,
                                                    std::optional<double> scales_w = std::nullopt) {
  return ops::upsample_nearest_exact2d_backward().call(grad_output, output_size, input_size,
                                                       scales_h, scales_w);
}

}  // namespace gpuopt
