// Padding and what shares its kernel, as operators of binding/op.h.
#pragma once

#include "binding/op.h"

namespace gpuopt {

struct Pad {
  using Result = at::Tensor;
  static constexpr std::string_view kSchema =
      "pad(Tensor self, SymInt[] pad, str mode=\"constant\", Scalar? value=None) -> Tensor";
  const at::Tensor& self;
  c10::SymIntArrayRef pad;
  std::string_view mode;
  const std::optional<at::Scalar>& value;
};

// The adjoint of a pad with a mode other than "constant". `size` is that of its input.
struct PadBackward {
  using Result = at::Tensor;
  static constexpr std::string_view kSchema =
      "_pad_backward(Tensor grad, SymInt[] size, SymInt[] pad, str mode) -> Tensor";
  const at::Tensor& grad;
  c10::SymIntArrayRef size;
  c10::SymIntArrayRef pad;
  std::string_view mode;
};

// at::roll, for torch_ops.override.
struct Roll {
  using Result = at::Tensor;
  static constexpr std::string_view kSchema =
      "_roll(Tensor self, SymInt[] shifts, int[] dims) -> Tensor";
  const at::Tensor& self;
  c10::SymIntArrayRef shifts;
  at::IntArrayRef dims;
};

// at::cat, for torch_ops.override.
struct Cat {
  using Result = at::Tensor;
  static constexpr std::string_view kSchema = "_cat(Tensor[] tensors, int dim) -> Tensor";
  const at::ITensorListRef& tensors;
  int64_t dim;
};

}  // namespace gpuopt
