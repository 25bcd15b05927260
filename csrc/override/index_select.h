// Gathers of rows at an index: index_select, and so the forward pass of an embedding.
#pragma once

#include <ATen/ops/index_select_ops.h>

#include "index_select/index_select_ops.h"
#include "override/index_add.h"

namespace gpuopt::overriding {

struct IndexSelect {
  using Aten = at::_ops::index_select;
  static constexpr Operator kOperator = Operator::kIndexSelect;

  static Reason decide(const Tensor& self, int64_t dim, const Tensor& index) {
    if (!is_plain(self) || !is_plain(index)) return Reason::kUnsupported;
    if (!is_measured(self.scalar_type())) return Reason::kDtype;
    const std::optional<int64_t> d = wrapped(dim, self);
    if (!d.has_value() || !is_index(index) || index.dim() != 1 || !on_device_of(self, {index})) {
      return Reason::kUnsupported;
    }
    const std::optional<int64_t> row = index_select::row_size(self, *d);
    if (!row.has_value() || *row > index_select::kLongestRow) return Reason::kLayout;
    return unless_always([&] {
      const auto item = static_cast<int64_t>(self.element_size());
      return policy::index_select(index.numel(), *row * item);
    });
  }
  static Tensor run(c10::DispatchKeySet key, const Tensor& self, int64_t dim, const Tensor& index) {
    const int64_t d = *wrapped(dim, self);
    const Tensor rows =
        d == 0 ? self : self.as_strided(self.sizes().slice(d), self.strides().slice(d));
    const Tensor result = redispatch(GatherRows{rows, index}, key);
    if (d == 0) return result;
    at::DimVector shape(self.sizes());
    shape[d] = index.numel();
    return result.view(shape);
  }
};

}  // namespace gpuopt::overriding
