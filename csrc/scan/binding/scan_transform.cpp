// Scans under torch.vmap, functionalization and autocast.
#include <ATen/autocast_mode.h>

#include "binding/vmap.h"
#include "binding/writing.h"
#include "scan/binding/scan_check.h"

namespace gpuopt::scan {
namespace {

using at::Tensor;

// ---------------------------------------------------------------- vmap

Tensor cumsum_vmap(const Cumsum& op) {
  const auto& [self, dim, dtype, reverse, exclusive] = op;
  const int64_t own = checked(op).dim;
  const VmapLevel level;
  const VmapLevel::Operand operand = level.unwrap(self);
  if (!operand.batch_dim.has_value()) {  // only another vmap level maps over it
    return level.wrap(gpuopt::cumsum(operand.value, own, dtype, reverse, exclusive), std::nullopt);
  }
  // A zero-dimensional example is scanned along an extra dimension of size 1.
  const Tensor result = gpuopt::cumsum(operand.aligned(1), own + 1, dtype, reverse, exclusive);
  return level.wrap(operand.logical_dim() == 0 ? result.squeeze(1) : result, 0);
}

Tensor& cumsum_inplace_vmap(const Inplace<Cumsum>& call) {
  const auto& [self, dim, dtype, reverse, exclusive] = call.in;
  const int64_t own = wrap_dim(name_of<Inplace<Cumsum>>(), self, dim);
  const VmapLevel level;
  const VmapLevel::Operand operand = level.unwrap(self);
  Tensor written = operand.aligned(1);
  const int64_t below = operand.batch_dim.has_value() ? own + 1 : own;
  gpuopt::call(Inplace<Cumsum>{{written, below, dtype, reverse, exclusive}, written});
  return call.self;
}

TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) {
  impl<Cumsum, cumsum_vmap>(m);
  impl<Inplace<Cumsum>, cumsum_inplace_vmap>(m);
}

TORCH_LIBRARY_IMPL(gpuopt, Functionalize, m) {
  impl_out_functional<Cumsum, checked_out>(m);
  impl_inplace_functional<Cumsum, checked_inplace>(m);
}

// ---------------------------------------------------------------- autocast

// As in torch.cumsum, autocast on CUDA sums to float32 unless dtype is given. cumsum_ and the CPU
// keep their dtype.
Tensor cumsum_autocast(const Cumsum& op) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCUDA);
  Cumsum cast = op;
  if (!op.dtype.has_value() && at::autocast::is_eligible(op.self, c10::DeviceType::CUDA)) {
    cast.dtype = at::kFloat;
  }
  return call(cast);
}

TORCH_LIBRARY_IMPL(gpuopt, AutocastCUDA, m) { impl<Cumsum, cumsum_autocast>(m); }

}  // namespace
}  // namespace gpuopt::scan
