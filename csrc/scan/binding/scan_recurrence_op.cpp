// The schema, CPU kernel and Meta kernel of gpuopt::linear_recurrence.
#include "binding/unfilled.h"
#include "scan/binding/scan_recurrence_check.h"

namespace gpuopt::scan {
namespace {

using at::Tensor;

TORCH_LIBRARY_FRAGMENT(gpuopt, m) { define<LinearRecurrence>(m); }

// ---------------------------------------------------------------- CPU: ATen's kernels

// One multiplication and addition of ATen per position.
Tensor linear_recurrence_cpu(const LinearRecurrence& op) {
  const auto& [a, b, dim, initial, reverse, shifted] = op;
  const Recurrence call = checked(op);
  const bool is_half = call.dtype == at::kHalf || call.dtype == at::kBFloat16;
  const auto compute = is_half ? at::kFloat : call.dtype;
  const bool scalar = call.sizes.empty();
  const std::vector<int64_t> sizes = C10_AS_INTARRAYREF_SLOW(call.sizes).vec();
  const auto rows_first = [&](const Tensor& x) {
    const Tensor whole = x.to(compute).expand(sizes);
    return scalar ? whole.unsqueeze(0) : whole.movedim(call.dim, 0);
  };
  const Tensor factors = rows_first(a), terms = rows_first(b);
  Tensor result = unfilled(terms.sizes(), b.options().dtype(compute));
  const int64_t length = terms.size(0);
  Tensor before;
  if (initial.has_value()) before = initial->to(compute).expand(terms.sizes().slice(1));
  for (int64_t i = 0; i < length && terms.numel() > 0; ++i) {
    const int64_t t = reverse ? length - 1 - i : i;
    Tensor now = result.select(0, t);
    if (!before.defined()) {
      now.copy_(terms.select(0, t));
    } else if (shifted && i == 0) {
      at::add_out(now, before, terms.select(0, t));
    } else {
      const Tensor factor = factors.select(0, !shifted ? t : reverse ? t + 1 : t - 1);
      at::addcmul_out(now, terms.select(0, t), factor, before);
    }
    before = now;
  }
  result = scalar ? result.squeeze(0) : result.movedim(0, call.dim);
  return unfilled(sizes, b.options().dtype(call.dtype)).copy_(result);
}

TORCH_LIBRARY_IMPL(gpuopt, CPU, m) { impl<LinearRecurrence, linear_recurrence_cpu>(m); }

// ---------------------------------------------------------------- Meta: shapes, possibly symbolic

Tensor linear_recurrence_meta(const LinearRecurrence& op) {
  const Recurrence call = checked(op);
  return at::empty_symint(call.sizes, op.b.options().dtype(call.dtype));
}

TORCH_LIBRARY_IMPL(gpuopt, Meta, m) { impl<LinearRecurrence, linear_recurrence_meta>(m); }

}  // namespace
}  // namespace gpuopt::scan
