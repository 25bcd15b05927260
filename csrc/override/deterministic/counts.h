// Writes, counts and reductions at indices, medians, and losses of images.
#pragma once

#include <cmath>
#include <string_view>
#include <tuple>

#include "override/deterministic/shared.h"
#include "override/scatter_reduce.h"

namespace gpuopt::overriding {

// ---------------------------------------------------------------- writes and counts at indices

struct Put {
  using Aten = at::_ops::put_;
  static constexpr Operator kOperator = operator_named("put_");

  static Reason decide(const Tensor& self, const Tensor& index, const Tensor& source, bool) {
    if (!is_deterministic()) return Reason::kAtenIsFaster;
    return taken_if(is_plain_or_empty(self) && is_plain_or_empty(index) &&
                    is_plain_or_empty(source) && index.scalar_type() == at::kLong &&
                    index.numel() == source.numel() && self.scalar_type() == source.scalar_type() &&
                    on_device_of(self, {index, source}) && has_no_overlap(self) &&
                    !self.is_alias_of(index) && !self.is_alias_of(source));
  }
  static Tensor& run(c10::DispatchKeySet key, Tensor& self, const Tensor& index,
                     const Tensor& source, bool accumulate) {
    if (index.numel() == 0) return self;
    Tensor flat = self.reshape({-1});
    if (accumulate && is_real_float(self.scalar_type())) {
      const Tensor counted = at::add(index, index.lt(0), self.numel());  // negative: from the end
      handle<Inplace<gpuopt::IndexAdd>>().redispatch(key, flat, 0, counted.reshape({-1}),
                                                     source.reshape({-1}), 1, kDeterministic);
    } else {
      put_at(flat, index, source, accumulate);
    }
    return flat.is_alias_of(self) ? self : self.copy_(flat.view(self.sizes()));
  }
};

struct Bincount {
  using Aten = at::_ops::bincount;
  static constexpr Operator kOperator = operator_named("bincount");

  static Reason decide(const Tensor& self, const TensorOption& weights,
                       const c10::SymInt& minlength) {
    if (!is_deterministic() || !is_given(weights)) return Reason::kAtenIsFaster;
    return taken_if(is_plain(self) && is_plain(*weights) && self.dim() == 1 &&
                    c10::isIntegralType(self.scalar_type(), /*includeBool=*/false) &&
                    weights->sizes() == self.sizes() && !weights->is_complex() &&
                    on_device_of(self, {*weights}) && minlength.expect_int() >= 0);
  }
  static Tensor run(c10::DispatchKeySet key, const Tensor& self, const TensorOption& weights,
                    const c10::SymInt& minlength) {
    const auto [least, greatest] = at::aminmax(self);
    TORCH_CHECK(least.item<int64_t>() >= 0,
                "bincount only supports 1-d non-negative integral inputs.");
    const int64_t bins = std::max(minlength.expect_int(), greatest.item<int64_t>() + 1);
    const bool is_float = weights->scalar_type() == at::kFloat;
    return sums_at(key, bins, self.to(at::kLong), is_float ? *weights : weights->to(at::kDouble));
  }
};

struct Histc {
  using Aten = at::_ops::histc;
  static constexpr Operator kOperator = operator_named("histc");

  static Reason decide(const Tensor& self, int64_t bins, const at::Scalar& min,
                       const at::Scalar& max) {
    const Reason known = decide_floats(self);
    if (known != Reason::kTaken) return known;
    if (c10::elementSize(self.scalar_type()) == 2) return Reason::kDtype;
    return taken_if(is_plain(self) && bins > 0 && !min.isComplex() && !max.isComplex());
  }
  // Computes bins as ATen's kernel does, and counts in integers, whose sums have no order.
  static Tensor run(c10::DispatchKeySet key, const Tensor& self, int64_t bins,
                    const at::Scalar& min, const at::Scalar& max) {
    double first = min.toDouble(), last = max.toDouble();
    if (first == last) {
      const auto [least, greatest] = at::aminmax(self);
      first = least.item<double>();
      last = greatest.item<double>();
    }
    if (first == last) {
      first -= 1;
      last += 1;
    }
    TORCH_CHECK(std::isfinite(first) && std::isfinite(last), "range of [", first, ", ", last,
                "] is not finite");
    TORCH_CHECK(first < last, "max must be larger than min");
    // A divisor on the device: by a number, ATen multiplies by the reciprocal.
    const Tensor start = at::full({}, first, self.options());
    const Tensor range = at::full({}, last, self.options()).sub_(start);
    const Tensor outside = self.ge(first).logical_and_(self.le(last)).logical_not_();
    const Tensor bin =
        self.sub(start).mul_(bins).div_(range).masked_fill_(outside, 0).to(at::kLong);
    const Tensor index = bin.clamp_max_(bins - 1).masked_fill_(outside, bins);
    return sums_at(key, bins + 1, index, at::ones_like(index)).narrow(0, 0, bins).to(self.dtype());
  }
};

// ---------------------------------------------------------------- index_reduce

struct IndexReduce {
  using Aten = at::_ops::index_reduce;
  static constexpr Operator kOperator = operator_named("index_reduce");

  static Reason decide(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                       std::string_view reduce, bool) {
    const Reason known = decide_floats(self, source);
    if (known != Reason::kTaken) return known;
    const std::optional<int64_t> d = wrapped(dim, self);
    return taken_if(d.has_value() && is_plain(self) && is_plain(index) && is_index(index) &&
                    index.dim() == 1 && on_device_of(self, {index}) &&
                    has_rows_of(self, source, *d) && source.size(*d) == index.numel() &&
                    has_no_overlap(self) && !self.is_alias_of(source) &&
                    (reduce == "prod" || reduce == "mean" || reduce == "amax" || reduce == "amin"));
  }
  static Tensor run(c10::DispatchKeySet key, const Tensor& self, int64_t dim, const Tensor& index,
                    const Tensor& source, std::string_view reduce, bool include_self) {
    return reduced_at(key, self, *wrapped(dim, self), index, source, reduce, include_self);
  }
};

struct IndexReduceInplace : IndexReduce {
  using Aten = at::_ops::index_reduce_;

  static Tensor& run(c10::DispatchKeySet key, Tensor& self, int64_t dim, const Tensor& index,
                     const Tensor& source, std::string_view reduce, bool include_self) {
    return self.copy_(IndexReduce::run(key, self, dim, index, source, reduce, include_self));
  }
};

// ---------------------------------------------------------------- medians, and losses of images

// A stable sort finds the first of equal medians, and the first NaN.
template <typename AtenOp, Operator op, bool skips_nan>
struct Median {
  using Aten = AtenOp;
  static constexpr Operator kOperator = op;

  static Reason decide(const Tensor& self, int64_t dim, bool) {
    if (!is_deterministic()) return Reason::kAtenIsFaster;
    return taken_if(is_plain(self) && self.dim() > 0 && wrapped(dim, self).has_value() &&
                    !self.is_complex() && self.scalar_type() != at::kBool);
  }
  static std::tuple<Tensor, Tensor> run(c10::DispatchKeySet, const Tensor& self, int64_t dim,
                                        bool keepdim) {
    const int64_t d = *wrapped(dim, self), size = self.size(d);
    const auto [sorted, order] = at::sort(self, /*stable=*/true, d, /*descending=*/false);
    const Tensor values = at::isnan(self).sum(d, /*keepdim=*/true).neg_().add_(size);
    const Tensor middle = values.sub(1).div_(2, "floor").clamp_min_(0);
    const Tensor position =
        skips_nan ? middle
                  : at::where(values.lt(size), values, at::full_like(values, (size - 1) / 2));
    const Tensor median = sorted.gather(d, position), index = order.gather(d, position);
    if (keepdim) return {median, index};
    return {median.squeeze(d), index.squeeze(d)};
  }
};

using MedianDim = Median<at::_ops::median_dim, operator_named("median"), false>;
using NanmedianDim = Median<at::_ops::nanmedian_dim, operator_named("nanmedian"), true>;

struct NllLoss2d {
  using Aten = at::_ops::nll_loss2d_forward;
  static constexpr Operator kOperator = operator_named("nll_loss2d_forward");

  static Reason decide(const Tensor& self, const Tensor& target, const TensorOption& weight,
                       int64_t, const c10::SymInt&) {
    const Reason known = is_given(weight) ? decide_floats(self, *weight) : decide_floats(self);
    if (known != Reason::kTaken) return known;
    return taken_if(is_plain(self) && self.dim() == 4 && is_plain(target) && target.dim() == 3 &&
                    target.scalar_type() == at::kLong && on_device_of(self, {target}) &&
                    target.size(0) == self.size(0) &&
                    target.sizes().slice(1) == self.sizes().slice(2) &&
                    (!is_given(weight) || weight->numel() == self.size(1)));
  }
  static std::tuple<Tensor, Tensor> run(c10::DispatchKeySet, const Tensor& self,
                                        const Tensor& target, const TensorOption& weight,
                                        int64_t reduction, const c10::SymInt& ignore_index) {
    const Tensor ignored = target.eq(ignore_index.expect_int());
    const Tensor known = target.masked_fill(ignored, 0);
    const Tensor picked = self.gather(1, known.unsqueeze(1)).squeeze(1).to(wide_type(self));
    Tensor weights = at::ones_like(picked);
    if (is_given(weight)) weights = weight->index_select(0, known.reshape({-1})).view_as(known);
    weights = weights.to(picked.scalar_type()).masked_fill(ignored, 0);
    const Tensor losses = picked.mul(weights).neg_().masked_fill_(ignored, 0);
    const auto rounded = [&](const Tensor& wide) { return wide.to(self.scalar_type()); };
    if (reduction == at::Reduction::None) {
      return {rounded(losses), at::zeros({}, self.options())};
    }
    const Tensor total = weights.sum(), sum = losses.sum();
    return {rounded(reduction == at::Reduction::Mean ? sum.div(total) : sum), rounded(total)};
  }
};

}  // namespace gpuopt::overriding
