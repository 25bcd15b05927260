// The argument check of transpose2d, shared by the CUDA, CPU and Meta kernels and by vmap.
// Exceptions have the types that Tensor.mT raises.
#pragma once

#include "transpose/binding/transpose_ops.h"

namespace gpuopt::transpose {

inline void check(const Transpose2D& op) {
  TORCH_CHECK(op.self.dim() >= 2, name_of<Transpose2D>(),
              ": input must be a matrix or a batch of matrices: ",
              "expected 2 dimensions or more, got shape ", op.self.sym_sizes());
}

}  // namespace gpuopt::transpose
