// Gathers of rows at an index: index_select, and so the forward pass of an embedding.
#pragma once

#include <ATen/ops/index_select_ops.h>

#include "index_select/index_select_check.h"
#include "index_select/index_select_ops.h"
#include "override/policy.h"
#include "override/predicates.h"

namespace gpuopt::overriding {

inline Reason decide_index_select(const Tensor& self, int64_t dim, const Tensor& index) {
  if (!index_select::is_supported(self, index)) return Reason::kUnsupported;
  if (!is_measured(self.scalar_type())) return Reason::kDtype;
  const std::optional<int64_t> d = wrapped(dim, self);
  if (!d.has_value()) return Reason::kUnsupported;
  const std::optional<int64_t> row = index_select::row_bytes(self, *d);
  if (!row.has_value()) return Reason::kLayout;
  return unless_always([&] { return policy::index_select(index.numel(), *row); });
}

using IndexSelect = Same<at::_ops::index_select, operator_named("index_select"),
                         gpuopt::IndexSelect, decide_index_select>;

}  // namespace gpuopt::overriding
