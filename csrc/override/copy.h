// Copies between transposed layouts. clone(), contiguous() and to() call copy_.
#pragma once

#include <ATen/ops/copy_ops.h>

#include "override/newer_aten.h"
#include "override/policy.h"
#include "override/predicates.h"
#include "transpose/binding/transpose_ops.h"
#include "transpose/binding/transpose_problem.h"

namespace gpuopt::overriding {

struct Copy {
  using Aten = at::_ops::copy_;
  static constexpr Operator kOperator = operator_named("copy_");

  static Reason decide(const Tensor& self, const Tensor& source, bool) {
    if (!source.defined() || self.dim() < 2 || self.strides() == source.strides()) {
      return Reason::kAtenIsFaster;
    }
    if (self.scalar_type() != source.scalar_type()) return Reason::kDtype;
    if (!transpose::only_moves_bits(self, source)) return Reason::kUnsupported;
    // The least size of policy::copy(), before the work to find the layout.
    if (bytes_of(self) < policy::kMiB && !takes_always()) return Reason::kSize;
    const std::optional<transpose::Problem> problem = transpose::transposition_of(self, source);
    if (!problem.has_value()) return Reason::kLayout;
    return unless_always(
        [&] { return unless_newer(kNewTransposes, [&] { return policy::copy(*problem); }); });
  }
  static Tensor& run(c10::DispatchKeySet key, Tensor& self, const Tensor& source, bool) {
    return redispatch(CopyTransposed{self, source}, key);
  }
};

}  // namespace gpuopt::overriding
