// Nearest-neighbour upsampling as operators of binding/op.h, in both modes: nearest and
// nearest-exact.
#pragma once

#include "binding/op.h"

namespace gpuopt {

// `from` is the image that is read. Scales are output pixels per input pixel.
template <bool exact>
struct Upsample2d {
  using Result = at::Tensor;
  static constexpr bool kExact = exact;
  static constexpr std::string_view kSchema =
      exact ? "upsample_nearest_exact2d(Tensor self, SymInt[2] output_size, float? scales_h=None, "
              "float? scales_w=None) -> Tensor"
            : "upsample_nearest2d(Tensor self, SymInt[2] output_size, float? scales_h=None, "
              "float? scales_w=None) -> Tensor";
  const at::Tensor& from;
  c10::SymIntArrayRef output_size;
  std::optional<double> scales_h, scales_w;
};

// The adjoint of Upsample2d. `from` is the gradient of its result.
template <bool exact>
struct Upsample2dBackward {
  using Result = at::Tensor;
  static constexpr bool kExact = exact;
  static constexpr std::string_view kSchema =
      exact ? "upsample_nearest_exact2d_backward(Tensor grad_output, SymInt[2] output_size, "
              "SymInt[4] input_size, float? scales_h=None, float? scales_w=None) -> Tensor"
            : "upsample_nearest2d_backward(Tensor grad_output, SymInt[2] output_size, "
              "SymInt[4] input_size, float? scales_h=None, float? scales_w=None) -> Tensor";
  const at::Tensor& from;
  c10::SymIntArrayRef output_size, input_size;
  std::optional<double> scales_h, scales_w;
};

// Upsample2d to a size, or by one factor for the height and one for the width.
template <bool exact>
struct Upsample2dVec {
  using Result = at::Tensor;
  static constexpr std::string_view kSchema =
      exact ? "upsample_nearest_exact2d.vec(Tensor input, SymInt[]? output_size, "
              "float[]? scale_factors) -> Tensor"
            : "upsample_nearest2d.vec(Tensor input, SymInt[]? output_size, "
              "float[]? scale_factors) -> Tensor";
  const at::Tensor& from;
  at::OptionalSymIntArrayRef output_size;
  std::optional<c10::ArrayRef<double>> scale_factors;
};

using UpsampleNearest2d = Upsample2d<false>;
using UpsampleNearest2dBackward = Upsample2dBackward<false>;
using UpsampleNearest2dVec = Upsample2dVec<false>;
using UpsampleNearestExact2d = Upsample2d<true>;
using UpsampleNearestExact2dBackward = Upsample2dBackward<true>;
using UpsampleNearestExact2dVec = Upsample2dVec<true>;

}  // namespace gpuopt
