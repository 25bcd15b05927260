// matmul under torch.vmap and autocast.
#include <algorithm>

#include "binding/autocast.h"
#include "binding/vmap.h"
#include "matmul/binding/matmul_check.h"

namespace gpuopt::matmul {
namespace {

using Operand = VmapLevel::Operand;

// The examples become the first dimension of the batch.
Tensor matmul_vmap(const Matmul& op, const VmapLevel& level, const c10::SymInt& /*examples*/) {
  check(op);
  Operand x = level.unwrap(op.self), y = level.unwrap(op.other);
  // Vectors become matrices. A new last dimension does not move batch_dim.
  const bool is_row = x.logical_dim() == 1, is_column = y.logical_dim() == 1;
  if (is_row) x.value = x.value.unsqueeze(-1);
  if (is_column) y.value = y.value.unsqueeze(-1);
  const int64_t rank = std::max(x.logical_dim(), y.logical_dim());
  const Tensor a = x.aligned(rank), b = y.aligned(rank);
  Tensor result = call(Matmul{is_row ? a.mT() : a, b, op.precision});
  if (is_column) result = result.squeeze(-1);
  if (is_row) result = result.squeeze(is_column ? -1 : -2);
  return level.wrap(result, 0);
}

// As torch.matmul, in the lower precision.
TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) {
  impl_vmap_after_cast<Matmul, matmul_vmap, lower_precision, at::kCUDA, at::kCPU>(m);
}
TORCH_LIBRARY_IMPL(gpuopt, AutocastCUDA, m) {
  impl_autocast<Matmul, at::kCUDA, lower_precision>(m);
}
TORCH_LIBRARY_IMPL(gpuopt, AutocastCPU, m) { impl_autocast<Matmul, at::kCPU, lower_precision>(m); }

}  // namespace
}  // namespace gpuopt::matmul
