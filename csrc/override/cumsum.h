// Cumulative sums.
#pragma once

#include <ATen/ops/cumsum_ops.h>

#include "override/newer_aten.h"
#include "override/policy.h"
#include "override/predicates.h"
#include "scan/binding/scan_ops.h"

namespace gpuopt::overriding {

struct Cumsum {
  using Aten = at::_ops::cumsum;
  static constexpr Operator kOperator = operator_named("cumsum");

  static Reason decide(const Tensor& self, int64_t dim, std::optional<at::ScalarType> dtype) {
    // Most calls of a model that is bound by the host end here.
    if (self.numel() < policy::kSmallestScan && !takes_always()) return Reason::kSize;
    if (!is_plain(self) || self.dim() == 0) return Reason::kUnsupported;
    const at::ScalarType input_dtype = self.scalar_type();
    if (!is_measured(input_dtype) || dtype.value_or(input_dtype) != input_dtype)
      return Reason::kDtype;
    // In deterministic mode, ATen raises an error before torch 2.15.
    const std::optional<int64_t> d = wrapped(dim, self);
    const bool raises = is_deterministic() && !kDeterministicScans;
    if (raises || !d.has_value()) return Reason::kUnsupported;
    return unless_always([&] {
      return policy::cumsum(self.numel(), self.size(*d), static_cast<int64_t>(self.element_size()));
    });
  }
  static Tensor run(c10::DispatchKeySet key, const Tensor& self, int64_t dim,
                    std::optional<at::ScalarType> dtype) {
    return redispatch(gpuopt::Cumsum{self, dim, dtype, false, false}, key);
  }
};

}  // namespace gpuopt::overriding
