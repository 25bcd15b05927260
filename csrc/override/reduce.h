// sum, mean, amax and amin over dimensions. Without dimensions, ATen calls them with an empty list.
#pragma once

#include <ATen/ops/amax_ops.h>
#include <ATen/ops/amin_ops.h>
#include <ATen/ops/mean_ops.h>
#include <ATen/ops/sum_ops.h>

#include "override/newer_aten.h"
#include "override/policy.h"
#include "override/predicates.h"
#include "reduce/binding/reduce_ops.h"

namespace gpuopt::overriding {

using DTypeOption = std::optional<at::ScalarType>;

// Bit d is set if dimension d is reduced. Returns nothing for dimensions that ATen refuses.
inline std::optional<uint64_t> reduced_dims(const Tensor& self, at::OptionalIntArrayRef dim) {
  const int64_t rank = self.dim();
  if (rank == 0 || rank > 64) return std::nullopt;
  if (!dim.has_value() || dim->empty()) return ~uint64_t{0} >> (64 - rank);
  uint64_t mask = 0;
  for (const int64_t d : *dim) {
    if (d < -rank || d >= rank) return std::nullopt;
    const uint64_t bit = uint64_t{1} << (d < 0 ? d + rank : d);
    if (mask & bit) return std::nullopt;
    mask |= bit;
  }
  return mask;
}

inline Reason decide_reduction(const Tensor& self, at::OptionalIntArrayRef dim, bool /*keepdim*/,
                               DTypeOption dtype = std::nullopt) {
  // Most calls of a model that is bound by the host end here.
  if (self.numel() < policy::kSmallestReduction && !takes_always()) return Reason::kSize;
  if (!is_plain(self)) return Reason::kUnsupported;
  const at::ScalarType input_dtype = self.scalar_type(), result = dtype.value_or(input_dtype);
  if (!is_measured(input_dtype) || (result != input_dtype && result != at::kFloat))
    return Reason::kDtype;
  const std::optional<uint64_t> reduced = reduced_dims(self, dim);
  if (!reduced.has_value()) return Reason::kUnsupported;
  return unless_always([&] {
    return policy::reduce(span_of(self.sizes()), span_of(self.strides()), *reduced,
                          static_cast<int64_t>(self.element_size()));
  });
}

inline Reason decide_extremum(const Tensor& self, at::OptionalIntArrayRef dim, bool keepdim) {
  const Reason reason = decide_reduction(self, dim, keepdim);
  const bool is_newer = kNewExtrema && !takes_always();
  return reason == Reason::kTaken && is_newer ? Reason::kNotMeasured : reason;
}

using Sum = Same<at::_ops::sum_dim_IntList, operator_named("sum"), ReduceSum, decide_reduction>;
using Mean = Same<at::_ops::mean_dim, operator_named("mean"), ReduceMean, decide_reduction>;
using Amax = Same<at::_ops::amax, operator_named("amax"), ReduceMax, decide_extremum>;
using Amin = Same<at::_ops::amin, operator_named("amin"), ReduceMin, decide_extremum>;

}  // namespace gpuopt::overriding
