// Gathers of rows at an index: index_select, and so the forward pass of an embedding, and gather.
#pragma once

#include <ATen/ops/gather_ops.h>
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

// An index that was expanded from one entry for each row. Dimensions before `dim` may have
// different entries.
struct Gather {
  using Aten = at::_ops::gather;
  static constexpr Operator kOperator = operator_named("gather");

  static Reason decide(const Tensor& self, int64_t dim, const Tensor& index, bool) {
    if (!is_plain(self) || !is_plain(index) || !on_device_of(self, {index}) ||
        index.scalar_type() != at::kLong || index.dim() != self.dim()) {
      return Reason::kUnsupported;
    }
    if (!is_measured(self.scalar_type())) return Reason::kDtype;
    const std::optional<int64_t> d = wrapped(dim, self);
    if (!d.has_value()) return Reason::kUnsupported;
    const auto rows = index_select::rows_of(self, *d, index);
    if (!rows.has_value() || rows->bytes == static_cast<int64_t>(self.element_size())) {
      return Reason::kLayout;
    }
    return unless_always(
        [&] { return policy::index_select(rows->tables * index.size(*d), rows->bytes); });
  }
  static Tensor run(c10::DispatchKeySet key, const Tensor& self, int64_t dim, const Tensor& index,
                    bool) {
    return redispatch(GatherRows{self, dim, index}, key);
  }
};

}  // namespace gpuopt::overriding
