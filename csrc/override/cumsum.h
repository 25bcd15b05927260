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
    // In deterministic mode, ATen's kernel raises an error before torch 2.15.
    if (is_deterministic() && !kDeterministicScans) return decide_raising(self, dim, dtype);
    // Most calls of a model that is bound by the host end here.
    if (self.numel() < policy::kSmallestScan && !takes_always()) return Reason::kSize;
    if (!is_plain(self) || self.dim() == 0) return Reason::kUnsupported;
    const at::ScalarType input_dtype = self.scalar_type();
    if (!is_measured(input_dtype) || dtype.value_or(input_dtype) != input_dtype)
      return Reason::kDtype;
    const std::optional<int64_t> d = wrapped(dim, self);
    if (!d.has_value()) return Reason::kUnsupported;
    return unless_always([&] {
      return policy::cumsum(self.numel(), self.size(*d), static_cast<int64_t>(self.element_size()));
    });
  }
  static Tensor run(c10::DispatchKeySet key, const Tensor& self, int64_t dim,
                    std::optional<at::ScalarType> dtype) {
    return redispatch(gpuopt::Cumsum{self, dim, dtype, false, false}, key);
  }

 protected:
  // ATen's scans of integers do not raise.
  static Reason decide_raising(const Tensor& self, int64_t dim,
                               std::optional<at::ScalarType> dtype) {
    const bool is_scan = is_plain(self) && wrapped(dim, self).has_value();
    if (!is_scan || self.is_complex()) return Reason::kUnsupported;
    return is_real_float(dtype.value_or(self.scalar_type())) ? Reason::kTaken : Reason::kDtype;
  }
};

// Taken where ATen's kernel raises. Nobody has measured it.
struct CumsumInplace : Cumsum {
  using Aten = at::_ops::cumsum_;

  static Reason decide(const Tensor& self, int64_t dim, std::optional<at::ScalarType> dtype) {
    if (!is_deterministic() || kDeterministicScans) return Reason::kNotMeasured;
    const bool keeps_dtype = dtype.value_or(self.scalar_type()) == self.scalar_type();
    return keeps_dtype ? decide_raising(self, dim, dtype) : Reason::kUnsupported;
  }
  static Tensor& run(c10::DispatchKeySet key, Tensor& self, int64_t dim,
                     std::optional<at::ScalarType> dtype) {
    return self.copy_(Cumsum::run(key, self, dim, dtype));
  }
};

}  // namespace gpuopt::overriding
