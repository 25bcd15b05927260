// sum, mean, amax and amin over dimensions. Without dimensions, ATen calls them with an empty list.
#pragma once

#include <ATen/ops/amax_ops.h>
#include <ATen/ops/amin_ops.h>
#include <ATen/ops/mean_ops.h>
#include <ATen/ops/sum_ops.h>

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

inline Reason decide_reduction(const Tensor& self, at::OptionalIntArrayRef dim,
                               DTypeOption dtype = std::nullopt) {
  // Most calls of a model that is bound by the host end here.
  if (self.numel() < policy::kSmallestReduction && !takes_always()) return Reason::kSize;
  if (!is_plain(self)) return Reason::kUnsupported;
  const at::ScalarType own = self.scalar_type(), result = dtype.value_or(own);
  if (!is_measured(own) || (result != own && result != at::kFloat)) return Reason::kDtype;
  const std::optional<uint64_t> reduced = reduced_dims(self, dim);
  if (!reduced.has_value()) return Reason::kUnsupported;
  return unless_always([&] {
    return policy::reduce(span_of(self.sizes()), span_of(self.strides()), *reduced,
                          static_cast<int64_t>(self.element_size()));
  });
}

// `Own` is the operator of gpuopt that computes the call.
template <typename AtenOp, Operator op, typename Own>
struct SumOrMean {
  using Aten = AtenOp;
  static constexpr Operator kOperator = op;

  static Reason decide(const Tensor& self, at::OptionalIntArrayRef dim, bool, DTypeOption dtype) {
    return decide_reduction(self, dim, dtype);
  }
  static Tensor run(c10::DispatchKeySet key, const Tensor& self, at::OptionalIntArrayRef dim,
                    bool keepdim, DTypeOption dtype) {
    return redispatch(Own{self, dim, keepdim, dtype}, key);
  }
};
using Sum = SumOrMean<at::_ops::sum_dim_IntList, Operator::kSum, ReduceSum>;
using Mean = SumOrMean<at::_ops::mean_dim, Operator::kMean, ReduceMean>;

template <typename AtenOp, Operator op, typename Own>
struct Extremum {
  using Aten = AtenOp;
  static constexpr Operator kOperator = op;

  static Reason decide(const Tensor& self, at::IntArrayRef dim, bool) {
    return decide_reduction(self, dim);
  }
  static Tensor run(c10::DispatchKeySet key, const Tensor& self, at::IntArrayRef dim,
                    bool keepdim) {
    return redispatch(Own{self, dim, keepdim}, key);
  }
};
using Amax = Extremum<at::_ops::amax, Operator::kAmax, ReduceMax>;
using Amin = Extremum<at::_ops::amin, Operator::kAmin, ReduceMin>;

}  // namespace gpuopt::overriding
