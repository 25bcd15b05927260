// Optional tensors. The dispatcher may pass an undefined tensor for one that is not given.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace gpuopt {

using TensorOption = std::optional<at::Tensor>;

inline bool is_given(const TensorOption& tensor) { return tensor.has_value() && tensor->defined(); }
inline TensorOption if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? TensorOption(tensor) : std::nullopt;
}
inline at::Tensor value_or_undefined(const TensorOption& tensor) {
  return tensor.has_value() ? *tensor : at::Tensor();
}

}  // namespace gpuopt
