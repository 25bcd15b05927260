// segment_reduce and its gradient. ATen has no checks of offsets. It checks
// lengths unless the call is `unsafe`, and so does the kernel here: wrong ones are passed on, and
// ATen raises its errors.
#pragma once

#include <ATen/ops/_segment_reduce_backward_ops.h>
#include <ATen/ops/segment_reduce_ops.h>

#include <cmath>
#include <limits>
#include <string_view>

#include "override/policy.h"
#include "override/predicates.h"
#include "segment/segment_ops.h"

namespace gpuopt::overriding {

using ScalarOption = std::optional<at::Scalar>;

// The word of gpuopt's operators for a reduction of ATen's, or nothing for an unknown one.
inline std::optional<std::string_view> reduction_of(std::string_view reduce) {
  if (reduce == "amax") return "max";
  if (reduce == "amin") return "min";
  for (const std::string_view known : {"sum", "mean", "max", "min", "prod"}) {
    if (reduce == known) return known;
  }
  return std::nullopt;
}

inline bool is_extremum(std::string_view reduce) { return reduce == "max" || reduce == "min"; }

// With what a reduction begins. Segments without entries give this number, except that a mean of
// them is NaN.
inline double start_of(std::string_view reduce) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (reduce == "max") return -kInfinity;
  if (reduce == "min") return kInfinity;
  return reduce == "prod" ? 1 : 0;
}

// Whether ATen converts `initial` without an error, for every dtype.
inline bool is_simple_start(const ScalarOption& initial) {
  if (!initial.has_value()) return true;
  if (initial->isComplex() || initial->isBoolean() || initial->isSymbolic()) return false;
  const double value = initial->toDouble();
  return !std::isfinite(value) || std::abs(value) < 65504;
}

// ATen converts `initial` to the dtype of the data.
inline double rounded_to(at::ScalarType dtype, double value) {
  if (dtype == at::kDouble) return value;
  const auto single = static_cast<float>(value);
  if (dtype == at::kHalf) return static_cast<float>(c10::Half(single));
  return dtype == at::kBFloat16 ? static_cast<float>(c10::BFloat16(single)) : single;
}

// Whether a vector of offsets or lengths gives the segments of the first dimension.
inline Reason decide_segments(const Tensor& data, std::string_view reduce,
                              const TensorOption& lengths, const TensorOption& offsets,
                              int64_t axis, const ScalarOption& initial) {
  if (is_given(offsets) == is_given(lengths)) return Reason::kUnsupported;
  const Tensor& segments = is_given(offsets) ? *offsets : *lengths;
  if (!is_plain(data) || !is_plain(segments)) return Reason::kUnsupported;
  if (!is_measured(data.scalar_type())) return Reason::kDtype;
  if (!is_simple_start(initial)) return Reason::kUnsupported;
  // The result of the kernel is rounded, so that only a maximum can be combined with `initial`.
  if (initial.has_value() && !is_extremum(reduction_of(reduce).value_or("")) &&
      initial->toDouble() != start_of(reduce)) {
    return Reason::kUnsupported;
  }
  const bool fit = reduction_of(reduce).has_value() && is_index(segments) && segments.dim() == 1 &&
                   segments.numel() >= (is_given(offsets) ? 2 : 1) && data.dim() > 0 &&
                   wrapped(axis, data) == 0 && on_device_of(data, {segments});
  return fit ? Reason::kTaken : Reason::kUnsupported;
}

inline Tensor offsets_of(const TensorOption& lengths, const TensorOption& offsets) {
  if (is_given(offsets)) return *offsets;
  return at::constant_pad_nd(at::cumsum(*lengths, 0, lengths->scalar_type()), {1, 0});
}

// The number of entries of each segment, in the shape of a column of the result.
inline Tensor counts_of(const Tensor& offsets, int64_t dims) {
  at::DimVector shape(static_cast<size_t>(dims), 1);
  shape[0] = -1;
  return offsets.diff().view(shape);
}

struct SegmentReduce {
  using Aten = at::_ops::segment_reduce;
  static constexpr Operator kOperator = operator_named("segment_reduce");
  static constexpr bool kMayPassOn = true;

  static Reason decide(const Tensor& data, std::string_view reduce, const TensorOption& lengths,
                       const TensorOption& indices, const TensorOption& offsets, int64_t axis, bool,
                       const ScalarOption& initial) {
    if (indices.has_value()) return Reason::kUnsupported;
    const Reason known = decide_segments(data, reduce, lengths, offsets, axis, initial);
    if (known != Reason::kTaken) return known;
    return unless_always([&] {
      const Tensor& segments = is_given(offsets) ? *offsets : *lengths;
      const int64_t rows = segments.numel() - (is_given(offsets) ? 1 : 0);
      const int64_t features = data.numel() / data.size(0);
      return policy::segment_reduce(features, rows * features, bytes_of(data));
    });
  }

  template <typename Rest>
  static std::optional<Tensor> attempt(c10::DispatchKeySet key, Rest, const Tensor& data,
                                       std::string_view reduce, const TensorOption& lengths,
                                       const TensorOption&, const TensorOption& offsets, int64_t,
                                       bool unsafe, const ScalarOption& initial) {
    // ATen waits for the GPU here, too.
    if (is_given(lengths) && !unsafe) {
      const Tensor is_valid =
          at::logical_and(lengths->min().ge(0), lengths->sum().eq(data.size(0)));
      if (!is_valid.item<bool>()) return std::nullopt;
    }
    return reduced(key, data, offsets_of(lengths, offsets), *reduction_of(reduce), initial);
  }

 private:
  static Tensor reduced(c10::DispatchKeySet key, const Tensor& data, const Tensor& offsets,
                        std::string_view reduce, const ScalarOption& initial) {
    const double none = start_of(reduce);
    const auto result_of = [&](std::string_view reduction, double empty) {
      return redispatch(segment::SegmentReduce{data, offsets, reduction, empty}, key);
    };
    if (!initial.has_value()) {
      return result_of(reduce, reduce == "mean" ? std::numeric_limits<double>::quiet_NaN() : none);
    }
    const double start = rounded_to(data.scalar_type(), initial->toDouble());
    const Tensor result = result_of(reduce, start);
    if (start == none) return result;
    return reduce == "max" ? result.clamp_min_(start) : result.clamp_max_(start);
  }
};

struct SegmentReduceBackward {
  using Aten = at::_ops::_segment_reduce_backward;
  static constexpr Operator kOperator = operator_named("_segment_reduce_backward");

  static Reason decide(const Tensor& grad, const Tensor& output, const Tensor& data,
                       std::string_view reduce, const TensorOption& lengths,
                       const TensorOption& offsets, int64_t axis, const ScalarOption& initial) {
    const Reason known = decide_segments(data, reduce, lengths, offsets, axis, initial);
    if (known != Reason::kTaken) return known;
    const int64_t segments = is_given(offsets) ? offsets->numel() - 1 : lengths->numel();
    at::DimVector sizes(data.sizes());
    sizes[0] = segments;
    const auto fits = [&](const Tensor& tensor) {
      return is_plain(tensor) && tensor.scalar_type() == data.scalar_type() &&
             on_device_of(data, {tensor}) && tensor.sizes() == at::IntArrayRef(sizes);
    };
    // The gradient of a product needs the product of the other entries.
    if (reduce == "prod" || !fits(grad) || !fits(output)) return Reason::kUnsupported;
    return unless_always([&] {
      return policy::segment_reduce_backward(is_extremum(*reduction_of(reduce)),
                                             data.numel() / data.size(0), grad.numel(),
                                             bytes_of(data));
    });
  }

  static Tensor run(c10::DispatchKeySet key, const Tensor& grad, const Tensor& output,
                    const Tensor& data, std::string_view reduce, const TensorOption& lengths,
                    const TensorOption& offsets, int64_t, const ScalarOption&) {
    const Tensor all_offsets = offsets_of(lengths, offsets);
    const auto expanded = [&](const Tensor& rows) {
      return redispatch(segment::SegmentExpand{rows, all_offsets, data.size(0)}, key);
    };
    if (reduce == "sum") return expanded(grad);
    if (reduce == "mean")
      return expanded(grad.div(counts_of(all_offsets, grad.dim()).clamp_min(1)));
    // Entries that equal the maximum share a positive gradient, and each have all of a negative
    // one, as in ATen. A NaN has all of it.
    const Tensor is_other = data.ne(expanded(output)).logical_and_(data.eq(data));
    const Tensor winners = redispatch(segment::SegmentReduce{is_other.logical_not().to(at::kInt),
                                                             all_offsets, "sum", std::nullopt},
                                      key);
    const Tensor shares = at::where(grad.gt(0), grad.div(winners.clamp_min(1)), grad);
    return expanded(shares).masked_fill_(is_other, 0);
  }
};

}  // namespace gpuopt::overriding
