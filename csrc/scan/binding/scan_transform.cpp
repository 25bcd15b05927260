// Scans under torch.vmap, functionalization and autocast.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "binding/functionalize.h"
#include "binding/vmap.h"
#include "scan/binding/scan_check.h"
#include "scan/binding/scan_ops.h"

namespace gpuopt::scan {
namespace {

using at::Tensor;
using DTypeOption = std::optional<at::ScalarType>;

// ---------------------------------------------------------------- vmap

Tensor cumsum_vmap(const Tensor& self, int64_t dim, DTypeOption dtype, bool reverse,
                   bool exclusive) {
  const int64_t own = check_cumsum(self, dim, dtype, reverse, exclusive).dim;
  const VmapLevel level;
  const VmapLevel::Operand operand = level.unwrap(self);
  if (!operand.batch_dim.has_value()) {  // only another vmap level maps over it
    return level.wrap(gpuopt::cumsum(operand.value, own, dtype, reverse, exclusive), std::nullopt);
  }
  // A zero-dimensional example is scanned along an extra dimension of size 1.
  const Tensor result = gpuopt::cumsum(operand.aligned(1), own + 1, dtype, reverse, exclusive);
  return level.wrap(operand.logical_dim() == 0 ? result.squeeze(1) : result, 0);
}

Tensor& cumsum_inplace_vmap(Tensor& self, int64_t dim, DTypeOption dtype, bool reverse,
                            bool exclusive) {
  const int64_t own = wrap_dim("gpuopt::cumsum_", self, dim);
  const VmapLevel level;
  const VmapLevel::Operand operand = level.unwrap(self);
  Tensor written = operand.aligned(1);
  ops::cumsum_inplace().call(written, operand.batch_dim.has_value() ? own + 1 : own, dtype, reverse,
                             exclusive);
  return self;
}

TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) {
  m.impl("cumsum", cumsum_vmap);
  m.impl("cumsum_", cumsum_inplace_vmap);
}

// ---------------------------------------------------------------- functionalization

Tensor& cumsum_out_functional(const Tensor& self, int64_t dim, DTypeOption dtype, bool reverse,
                              bool exclusive, Tensor& out) {
  const Scan scan = check_cumsum_out(self, dim, dtype, reverse, exclusive, out);
  return functionalize_write(
      "gpuopt::cumsum", out, {self},
      [&] { return gpuopt::cumsum(functional_value(self), dim, scan.dtype, reverse, exclusive); },
      [&] { ops::cumsum_out().call(self, dim, dtype, reverse, exclusive, out); });
}

Tensor& cumsum_inplace_functional(Tensor& self, int64_t dim, DTypeOption dtype, bool reverse,
                                  bool exclusive) {
  const Scan scan = check_cumsum_inplace(self, dim, dtype, reverse, exclusive);
  return functionalize_write(
      "gpuopt::cumsum_", self, {},
      [&] { return gpuopt::cumsum(functional_value(self), dim, scan.dtype, reverse, exclusive); },
      [&] { ops::cumsum_inplace().call(self, dim, dtype, reverse, exclusive); });
}

TORCH_LIBRARY_IMPL(gpuopt, Functionalize, m) {
  m.impl("cumsum.out", cumsum_out_functional);
  m.impl("cumsum_", cumsum_inplace_functional);
}

// ---------------------------------------------------------------- autocast

// As in torch.cumsum, autocast on CUDA sums to float32 unless dtype is given. cumsum_ and the CPU
// keep their dtype.
Tensor cumsum_autocast(const Tensor& self, int64_t dim, DTypeOption dtype, bool reverse,
                       bool exclusive) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCUDA);
  if (!dtype.has_value() && at::autocast::is_eligible(self, c10::DeviceType::CUDA)) {
    dtype = at::kFloat;
  }
  return gpuopt::cumsum(self, dim, dtype, reverse, exclusive);
}

TORCH_LIBRARY_IMPL(gpuopt, AutocastCUDA, m) { m.impl("cumsum", cumsum_autocast); }

}  // namespace
}  // namespace gpuopt::scan
