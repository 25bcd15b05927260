// The argument check of transpose2d and the shape of its result, shared by the CUDA, CPU and Meta
// kernels and by vmap. Exceptions have the types that Tensor.mT raises.
#pragma once

#include "binding/check.h"

namespace gpuopt::transpose {

inline void check_transpose2d(const at::Tensor& self) {
  TORCH_CHECK(self.dim() >= 2,
              "gpuopt::transpose2d: self must be a matrix or a batch of matrices: ",
              "expected 2 dimensions or more, got shape ", self.sym_sizes());
}

// The sizes of the result, which is contiguous.
template <typename Size>
std::vector<Size> transposed_sizes(const at::Tensor& self) {
  std::vector<Size> sizes = sizes_of<Size>(self).vec();
  std::swap(sizes.end()[-1], sizes.end()[-2]);
  return sizes;
}

}  // namespace gpuopt::transpose
