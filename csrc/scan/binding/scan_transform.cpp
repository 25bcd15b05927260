// Scans under torch.vmap, functionalization and autocast.
#include "binding/autocast.h"
#include "binding/vmap.h"
#include "binding/writing.h"
#include "scan/binding/scan_check.h"

namespace gpuopt::scan {
namespace {

using at::Tensor;

Tensor cumsum_vmap(const Cumsum& op, const VmapLevel& level, const c10::SymInt&) {
  const auto& [self, dim, dtype, reverse, exclusive] = op;
  const int64_t own = checked(op).dim;
  const VmapLevel::Operand operand = level.unwrap(self);
  // A zero-dimensional example is scanned along an extra dimension of size 1.
  const Tensor result = gpuopt::cumsum(operand.aligned(1), own + 1, dtype, reverse, exclusive);
  return level.wrap(operand.logical_dim() == 0 ? result.squeeze(1) : result, 0);
}

Tensor& cumsum_inplace_vmap(const Inplace<Cumsum>& call) {
  const auto& [self, dim, dtype, reverse, exclusive] = call.in;
  const int64_t own = checked_dim(name_of<Inplace<Cumsum>>(), dim, self.dim());
  const VmapLevel level;
  const VmapLevel::Operand operand = level.unwrap(self);
  Tensor written = operand.aligned(1);
  const int64_t below = operand.batch_dim.has_value() ? own + 1 : own;
  gpuopt::call(Inplace<Cumsum>{{written, below, dtype, reverse, exclusive}, written});
  return call.self;
}

TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) {
  impl_vmap<Cumsum, cumsum_vmap>(m);
  impl<Inplace<Cumsum>, cumsum_inplace_vmap>(m);
}

TORCH_LIBRARY_IMPL(gpuopt, Functionalize, m) {
  impl_out_functional<Cumsum, checked_out>(m);
  impl_inplace_functional<Cumsum, checked_inplace>(m);
}

TORCH_LIBRARY_IMPL(gpuopt, AutocastCUDA, m) { impl_autocast_sum<Cumsum>(m); }  // not cumsum_

}  // namespace
}  // namespace gpuopt::scan
