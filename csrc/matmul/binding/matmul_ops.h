// The product of matrices as an operator of binding/op.h.
#pragma once

#include "binding/op.h"

namespace gpuopt {

// torch.matmul(self, other). `precision` is "ieee" or "3xtf32".
struct Matmul {
  using Result = at::Tensor;
  static constexpr std::string_view kSchema =
      "matmul(Tensor self, Tensor other, *, str precision=\"ieee\") -> Tensor";
  const at::Tensor &self, &other;
  std::string_view precision;
};

// matmul in 3xTF32, for operands that were checked. Undefined if cuBLAS is faster.
struct MatmulByPath {
  using Result = at::Tensor;
  static constexpr std::string_view kSchema = "_matmul_own(Tensor self, Tensor other) -> Tensor";
  const at::Tensor &self, &other;
};

}  // namespace gpuopt
