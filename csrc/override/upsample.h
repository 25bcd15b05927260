// Nearest-neighbour upsampling of images and its gradients.
#pragma once

#include <ATen/ops/_upsample_nearest_exact2d_backward_ops.h>
#include <ATen/ops/_upsample_nearest_exact2d_ops.h>
#include <ATen/ops/upsample_nearest2d_backward_ops.h>
#include <ATen/ops/upsample_nearest2d_ops.h>

#include "override/policy.h"
#include "override/predicates.h"
#include "upsample/binding/upsample_check.h"

namespace gpuopt::overriding {

using Scale = std::optional<double>;

// Sizes that gpuopt supports.
inline bool are_valid(c10::SymIntArrayRef sizes) {
  return std::all_of(sizes.begin(), sizes.end(), [](const c10::SymInt& size) {
    const int64_t value = size.maybe_as_int().value_or(0);
    return 0 < value && value <= upsample::kMaxSize;
  });
}

// Whether `image` (N, C, H, W) is supported, and the other size is valid.
inline Reason decide_image(const Tensor& image, c10::SymIntArrayRef output_size) {
  if (!is_plain(image) || image.dim() != 4) return Reason::kUnsupported;
  if (!is_measured(image.scalar_type())) return Reason::kDtype;
  const bool valid = output_size.size() == 2 && are_valid(output_size);
  return valid ? Reason::kTaken : Reason::kUnsupported;
}

inline bool is_channels_last_image(const Tensor& image) {
  return image.suggest_memory_format() == at::MemoryFormat::ChannelsLast;
}

inline Reason decide_upsample(const Tensor& self, c10::SymIntArrayRef output_size, Scale, Scale) {
  const Reason known = decide_image(self, output_size);
  if (known != Reason::kTaken) return known;
  return unless_always([&] {
    const int64_t height = output_size[0].expect_int(), width = output_size[1].expect_int();
    const int64_t images = self.size(0) * self.size(1);
    const int64_t bytes =
        bytes_of(self) + images * height * width * static_cast<int64_t>(self.element_size());
    return policy::upsample(height == self.size(2) && width == self.size(3),
                            is_channels_last_image(self), bytes);
  });
}

inline Reason decide_upsample_backward(const Tensor& grad, c10::SymIntArrayRef output_size,
                                       c10::SymIntArrayRef input_size, Scale, Scale) {
  const Reason known = decide_image(grad, output_size);
  if (known != Reason::kTaken) return known;
  if (input_size.size() != 4 || !are_valid(input_size)) return Reason::kUnsupported;
  if (grad.size(0) != input_size[0] || grad.size(1) != input_size[1] ||
      grad.size(2) != output_size[0] || grad.size(3) != output_size[1]) {
    return Reason::kUnsupported;
  }
  return unless_always([&] {
    const int64_t height = input_size[2].expect_int(), width = input_size[3].expect_int();
    const int64_t images = grad.size(0) * grad.size(1);
    const int64_t bytes =
        bytes_of(grad) + images * height * width * static_cast<int64_t>(grad.element_size());
    return policy::upsample_backward(height == grad.size(2) && width == grad.size(3),
                                     is_channels_last_image(grad), images, bytes);
  });
}

using Nearest = Same<at::_ops::upsample_nearest2d, operator_named("upsample_nearest2d"),
                     UpsampleNearest2d, decide_upsample>;
using NearestExact =
    Same<at::_ops::_upsample_nearest_exact2d, operator_named("_upsample_nearest_exact2d"),
         UpsampleNearestExact2d, decide_upsample>;
using NearestBackward =
    Same<at::_ops::upsample_nearest2d_backward, operator_named("upsample_nearest2d_backward"),
         UpsampleNearest2dBackward, decide_upsample_backward>;
using NearestExactBackward = Same<at::_ops::_upsample_nearest_exact2d_backward,
                                  operator_named("_upsample_nearest_exact2d_backward"),
                                  UpsampleNearestExact2dBackward, decide_upsample_backward>;

}  // namespace gpuopt::overriding
