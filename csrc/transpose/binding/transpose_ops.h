// Transposition as operators of binding/op.h.
#pragma once

#include "binding/op.h"

namespace gpuopt {

struct Transpose2D {
  using Result = at::Tensor;
  static constexpr std::string_view kSchema = "transpose2d(Tensor self) -> Tensor";
  const at::Tensor& self;
};

// out.copy_(self), which transposes where transpose::transposition_of() finds a transposition.
struct CopyTransposed {
  using Result = at::Tensor&;
  static constexpr std::string_view kSchema =
      "_copy_transposed(Tensor(a!) out, Tensor self) -> Tensor(a!)";
  at::Tensor& out;
  const at::Tensor& self;
};

inline at::Tensor transpose2d(const at::Tensor& self) { return call(Transpose2D{self}); }

}  // namespace gpuopt
