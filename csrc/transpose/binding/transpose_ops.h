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

namespace transpose {

// Exceptions have the types that Tensor.mT raises.
inline void check(const Transpose2D& op) {
  TORCH_CHECK(op.self.dim() >= 2, name_of<Transpose2D>(),
              ": input must be a matrix or a batch of matrices: expected 2 dimensions or more, got "
              "shape ",
              op.self.sym_sizes());
}

}  // namespace transpose

}  // namespace gpuopt
