// transpose2d under torch.vmap. There is no autocast rule, because there is nothing to cast.
#include <torch/library.h>

#include "binding/vmap.h"
#include "transpose/binding/transpose_check.h"
#include "transpose/binding/transpose_ops.h"

namespace gpuopt::transpose {
namespace {

using at::Tensor;

// The examples that vmap maps over become one more dimension of the batch.
Tensor transpose2d_vmap(const Tensor& self) {
  check_transpose2d(self);
  const VmapLevel level;
  const VmapLevel::Operand operand = level.unwrap(self);
  if (!operand.batch_dim.has_value()) {  // only another vmap level maps over it
    return level.wrap(gpuopt::transpose2d(operand.value), std::nullopt);
  }
  return level.wrap(gpuopt::transpose2d(operand.value.movedim(*operand.batch_dim, 0)), 0);
}

TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) { m.impl("transpose2d", transpose2d_vmap); }

}  // namespace
}  // namespace gpuopt::transpose
