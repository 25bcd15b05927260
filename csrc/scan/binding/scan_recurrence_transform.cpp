// Linear recurrences under torch.vmap. They need no rule for functionalization, because they write
// to no argument, and none for autocast, because they promote dtypes.
#include "binding/vmap.h"
#include "scan/binding/scan_recurrence_check.h"

namespace gpuopt::scan {
namespace {

using at::Tensor;

Tensor linear_recurrence_vmap(const LinearRecurrence& op, const VmapLevel& level,
                              const c10::SymInt& examples) {
  const auto& [a, b, dim, initial, reverse, shifted] = op;
  const int64_t own = checked(op).dim;
  const auto factors = level.unwrap(a), terms = level.unwrap(b);
  // Zero-dimensional examples get an extra dimension of size 1, along which they are scanned.
  const int64_t logical = std::max(factors.logical_dim(), terms.logical_dim());
  const int64_t rank = std::max<int64_t>(logical, 1);
  TensorOption start;
  if (initial.has_value()) start = level.unwrap(*initial).aligned(rank - 1);
  Tensor values = terms.aligned(rank);
  if (!factors.batch_dim.has_value() && !terms.batch_dim.has_value()) {
    // Only `initial` has examples.
    for (int64_t d = values.dim(); d < rank; ++d) values = values.unsqueeze(0);
    auto sizes = values.sym_sizes().vec();
    sizes.insert(sizes.begin(), examples);
    values = values.unsqueeze(0).expand_symint(sizes);
  }
  const Tensor result =
      gpuopt::linear_recurrence(factors.aligned(rank), values, own + 1, start, reverse, shifted);
  return level.wrap(logical == 0 ? result.squeeze(1) : result, 0);
}

TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) {
  impl_vmap<LinearRecurrence, linear_recurrence_vmap>(m);
}

}  // namespace
}  // namespace gpuopt::scan
