// Linear recurrences under torch.vmap. They need no rule for functionalization, because they write
// to no argument, and none for autocast, because they promote dtypes.
#include "binding/vmap.h"
#include "scan/binding/scan_recurrence_check.h"

namespace gpuopt::scan {
namespace {

using at::Tensor;

Tensor linear_recurrence_vmap(const LinearRecurrence& op) {
  const auto& [a, b, dim, initial, reverse, shifted] = op;
  const int64_t own = checked(op).dim;
  const VmapLevel level;
  const auto factors = level.unwrap(a), terms = level.unwrap(b);
  std::optional<VmapLevel::Operand> first;
  if (initial.has_value()) first = level.unwrap(*initial);
  const bool first_only = first.has_value() && first->batch_dim.has_value() &&
                          !factors.batch_dim.has_value() && !terms.batch_dim.has_value();
  if (!factors.batch_dim.has_value() && !terms.batch_dim.has_value() && !first_only) {
    // Only another vmap level maps over the operands.
    TensorOption value;
    if (first.has_value()) value = first->value;
    const Tensor result =
        gpuopt::linear_recurrence(factors.value, terms.value, own, value, reverse, shifted);
    return level.wrap(result, std::nullopt);
  }
  // Zero-dimensional examples get an extra dimension of size 1, along which they are scanned.
  const int64_t logical = std::max(factors.logical_dim(), terms.logical_dim());
  const int64_t rank = std::max<int64_t>(logical, 1);
  TensorOption start;
  if (first.has_value()) start = first->aligned(rank - 1);
  Tensor values = terms.aligned(rank);
  if (first_only) {  // the term has no examples yet
    for (int64_t d = values.dim(); d < rank; ++d) values = values.unsqueeze(0);
    auto sizes = values.sym_sizes().vec();
    sizes.insert(sizes.begin(), first->value.sym_size(*first->batch_dim));
    values = values.unsqueeze(0).expand_symint(sizes);
  }
  const Tensor result =
      gpuopt::linear_recurrence(factors.aligned(rank), values, own + 1, start, reverse, shifted);
  return level.wrap(logical == 0 ? result.squeeze(1) : result, 0);
}

TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) {
  impl<LinearRecurrence, linear_recurrence_vmap>(m);
}

}  // namespace
}  // namespace gpuopt::scan
