// The schema, CPU kernel and Meta kernel of gpuopt::linear_recurrence.
#include <torch/library.h>

#include "binding/unfilled.h"
#include "scan/binding/scan_recurrence_check.h"

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  m.def(
      "linear_recurrence(Tensor a, Tensor b, int dim, Tensor? initial=None, bool reverse=False, "
      "*, bool shifted=False) -> Tensor",
      {at::Tag::pt2_compliant_tag});
}

namespace gpuopt::scan {
namespace {

using at::Tensor;

// ---------------------------------------------------------------- CPU: ATen's kernels

// One multiplication and addition of ATen per position.
Tensor linear_recurrence_cpu(const Tensor& a, const Tensor& b, int64_t dim,
                             const TensorOption& initial, bool reverse, bool shifted) {
  const Recurrence call = check_recurrence(a, b, dim, initial);
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

TORCH_LIBRARY_IMPL(gpuopt, CPU, m) { m.impl("linear_recurrence", linear_recurrence_cpu); }

// ---------------------------------------------------------------- Meta: shapes, possibly symbolic

Tensor linear_recurrence_meta(const Tensor& a, const Tensor& b, int64_t dim,
                              const TensorOption& initial, bool, bool) {
  const Recurrence call = check_recurrence(a, b, dim, initial);
  return at::empty_symint(call.sizes, b.options().dtype(call.dtype));
}

TORCH_LIBRARY_IMPL(gpuopt, Meta, m) { m.impl("linear_recurrence", linear_recurrence_meta); }

}  // namespace
}  // namespace gpuopt::scan
