// The dot products as operators of binding/op.h.
#pragma once

#include "binding/op.h"

namespace gpuopt {

// sum(self * other)
struct Dot {
  using Result = at::Tensor;
  static constexpr std::string_view kSchema = "dot(Tensor self, Tensor tensor) -> Tensor";
  static constexpr const char* kOther = "tensor";  // the name of `other` in the schema
  const at::Tensor &self, &other;
};

// sum(conj(self) * other)
struct Vdot {
  using Result = at::Tensor;
  static constexpr std::string_view kSchema = "vdot(Tensor self, Tensor other) -> Tensor";
  static constexpr const char* kOther = "other";
  const at::Tensor &self, &other;
};

// The dot product of each row.
struct DotRows {
  using Result = at::Tensor;
  static constexpr std::string_view kSchema = "dot_rows(Tensor self, Tensor tensor) -> Tensor";
  static constexpr const char* kOther = "tensor";
  const at::Tensor &self, &other;
};

// A dot product whose parts are added atomically.
struct DotFastAtomic {
  using Result = at::Tensor;
  static constexpr std::string_view kSchema =
      "dot_fast_atomic(Tensor self, Tensor tensor) -> Tensor";
  static constexpr const char* kOther = "tensor";
  const at::Tensor &self, &other;
};

}  // namespace gpuopt
