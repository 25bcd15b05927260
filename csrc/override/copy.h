// Copies between transposed layouts. clone(), contiguous() and to() call copy_.
#pragma once

#include <ATen/ops/copy_ops.h>

#include "binding/op_handle.h"
#include "override/policy.h"
#include "override/predicates.h"

namespace gpuopt {

namespace ops {
// out.copy_(self), which transposes where overriding::transposition_of() finds a transposition.
GPUOPT_OP(copy_transposed, "_copy_transposed", "", at::Tensor&(at::Tensor&, const at::Tensor&))
}  // namespace ops

namespace overriding {

// Nothing if `out` is not dense, or if no two dimensions are exchanged.
inline std::optional<transpose::Problem> transposition_of(const Tensor& out, const Tensor& self) {
  const std::optional<Dims> dims =
      merged_dims(span_of(self.sizes()), span_of(out.strides()), span_of(self.strides()));
  if (!dims.has_value()) return std::nullopt;
  std::optional<transpose::Problem> problem = policy::as_transposition(*dims);
  if (!problem.has_value()) return std::nullopt;
  problem->in = self.const_data_ptr();
  problem->out = out.mutable_data_ptr();
  problem->item = static_cast<int64_t>(self.element_size());
  return problem;
}

struct Copy {
  using Aten = at::_ops::copy_;
  static constexpr Operator kOperator = Operator::kCopy;

  // Whether a copy only moves bits, between memory that does not overlap.
  static bool supports(const Tensor& self, const Tensor& source) {
    return self.scalar_type() == source.scalar_type() && self.sizes() == source.sizes() &&
           on_device_of(self, {source}) && is_plain(self) && is_plain(source) &&
           !self.is_alias_of(source);
  }
  static Reason decide(const Tensor& self, const Tensor& source, bool) {
    if (!source.defined() || self.dim() < 2 || self.strides() == source.strides()) {
      return Reason::kAtenIsFaster;
    }
    if (self.scalar_type() != source.scalar_type()) return Reason::kDtype;
    if (!supports(self, source)) return Reason::kUnsupported;
    // The least size of policy::copy(), before the work to find the layout.
    if (bytes_of(self) < policy::kMiB && !takes_always()) return Reason::kSize;
    const std::optional<transpose::Problem> problem = transposition_of(self, source);
    if (!problem.has_value()) return Reason::kLayout;
    return unless_always([&] { return policy::copy(*problem); });
  }
  static Tensor& run(c10::DispatchKeySet key, Tensor& self, const Tensor& source, bool) {
    return ops::copy_transposed().redispatch(key, self, source);
  }
};

}  // namespace overriding
}  // namespace gpuopt
