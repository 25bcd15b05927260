// transpose2d under torch.vmap. There is no autocast rule, because there is nothing to cast.
#include "binding/vmap.h"
#include "transpose/binding/transpose_check.h"

namespace gpuopt::transpose {
namespace {

using at::Tensor;

// The examples that vmap maps over become one more dimension of the batch.
Tensor transpose2d_vmap(const Transpose2D& op, const VmapLevel& level, const c10::SymInt&) {
  check(op);
  const VmapLevel::Operand operand = level.unwrap(op.self);
  return level.wrap(gpuopt::transpose2d(operand.aligned(operand.logical_dim())), 0);
}

TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) { impl_vmap<Transpose2D, transpose2d_vmap>(m); }

}  // namespace
}  // namespace gpuopt::transpose
