// Operators for which ATen has no deterministic CUDA kernel, composed of deterministic ones:
// gradients of padding and of maxima, and writes at indices. docs/deterministic.md lists all of
// them. They are taken while torch.use_deterministic_algorithms is on, and never otherwise.
#pragma once

#include <ATen/Operators.h>

#include <array>
#include <cmath>
#include <tuple>

#include "binding/optional.h"
#include "index_add/binding/index_add_ops.h"
#include "override/predicates.h"
#include "override/scatter_reduce.h"

namespace gpuopt::overriding {

// ---------------------------------------------------------------- what the operators share

// Whether the mode asks for these operands, which are floats of one dtype on one device.
template <typename... Tensors>
Reason decide_floats(const Tensor& first, const Tensors&... others) {
  if (!is_deterministic()) return Reason::kAtenIsFaster;
  if (!is_plain(first) || (!is_plain(others) || ...)) return Reason::kUnsupported;
  if (!is_real_float(first.scalar_type())) return Reason::kDtype;
  const bool fit =
      ((others.scalar_type() == first.scalar_type()) && ...) && on_device_of(first, {others...});
  return fit ? Reason::kTaken : Reason::kUnsupported;
}

inline Reason taken_if(bool fit) { return fit ? Reason::kTaken : Reason::kUnsupported; }

// Whether all sizes but the last `dims` agree.
inline bool has_planes_of(const Tensor& one, const Tensor& other, int64_t dims) {
  return one.dim() == other.dim() && one.dim() >= dims &&
         one.sizes().slice(0, one.dim() - dims) == other.sizes().slice(0, other.dim() - dims);
}

inline bool are_indices(const Tensor& index, const Tensor& values) {
  return is_plain(index) && index.scalar_type() == at::kLong && index.sizes() == values.sizes() &&
         index.device() == values.device();
}

// A vector of `size` values with the sums of the values at each index.
inline Tensor sums_at(c10::DispatchKeySet key, int64_t size, const Tensor& index,
                      const Tensor& values) {
  const Tensor zeros = at::zeros({size}, values.options());
  return redispatch(
      gpuopt::IndexAdd{zeros, 0, index.reshape({-1}), values.reshape({-1}), 1, kDeterministic},
      key);
}

// An index within a plane, for each of (.., N) as an index of all planes.
inline Tensor in_all_planes(const Tensor& index, int64_t planes, int64_t plane) {
  const Tensor first = at::arange(planes, index.options()).mul_(plane).unsqueeze_(1);
  return index.reshape({planes, -1}).add(first).view({-1});
}

// Writes values at indices of a vector. In deterministic mode, ATen sorts the indices.
inline void put_at(const Tensor& vector, const Tensor& index, const Tensor& values,
                   bool accumulate) {
  Tensor result = vector;
  at::index_put_(result, c10::List<std::optional<Tensor>>({index.reshape({-1})}),
                 values.reshape({-1}), accumulate);
}

// ---------------------------------------------------------------- padding

// Values of the border are added to the values that they repeat, one dimension after the other.
template <typename AtenOp, Operator op, int64_t dims, bool reflects>
struct PaddingBackward {
  using Aten = AtenOp;
  static constexpr Operator kOperator = op;

  static Reason decide(const Tensor& grad, const Tensor& self, c10::SymIntArrayRef padding) {
    const Reason known = decide_floats(grad, self);
    if (known != Reason::kTaken) return known;
    if (padding.size() != 2 * dims || !has_planes_of(grad, self, dims)) return Reason::kUnsupported;
    for (int64_t k = 0; k < dims; ++k) {
      const int64_t dim = self.dim() - 1 - k, size = self.size(dim);
      const int64_t before = padding[2 * k].expect_int(), after = padding[2 * k + 1].expect_int();
      const bool fits = !reflects || std::max(before, after) < size;
      if (before < 0 || after < 0 || !fits || grad.size(dim) != before + size + after) {
        return Reason::kUnsupported;
      }
    }
    return Reason::kTaken;
  }
  static Tensor run(c10::DispatchKeySet, const Tensor& grad, const Tensor& self,
                    c10::SymIntArrayRef padding) {
    Tensor sums = grad.to(wide_type(grad), /*non_blocking=*/false, /*copy=*/true);
    for (int64_t k = 0; k < dims; ++k) {
      const int64_t dim = self.dim() - 1 - k, size = self.size(dim);
      const int64_t before = padding[2 * k].expect_int(), after = padding[2 * k + 1].expect_int();
      const Tensor core = sums.narrow(dim, before, size);
      add(core, dim, 0, sums.narrow(dim, 0, before));
      add(core, dim, size - 1, sums.narrow(dim, before + size, after));
      sums = core;
    }
    return sums.to(self.scalar_type()).contiguous();
  }

 private:
  // Adds a border to the values beside position `edge`, or to the value there.
  static void add(const Tensor& core, int64_t dim, int64_t edge, const Tensor& border) {
    const int64_t size = border.size(dim);
    if (size == 0) return;
    if (reflects) {
      core.narrow(dim, edge == 0 ? 1 : edge - size, size).add_(border.flip(dim));
    } else {
      core.narrow(dim, edge, 1).add_(border.sum(dim, /*keepdim=*/true));
    }
  }
};

// ---------------------------------------------------------------- maxima of windows

// The last argument has the position of each maximum in its plane. Some gradients keep the layout
// of the input.
template <typename AtenOp, Operator op, int64_t dims, bool keeps_layout>
struct MaxPoolBackward {
  using Aten = AtenOp;
  static constexpr Operator kOperator = op;

  template <typename... Rest>
  static Reason decide(const Tensor& grad, const Tensor& self, const Rest&... rest) {
    const Reason known = decide_floats(grad, self);
    if (known != Reason::kTaken) return known;
    return taken_if(has_planes_of(grad, self, dims) && are_indices(last_of(rest...), grad));
  }
  template <typename... Rest>
  static Tensor run(c10::DispatchKeySet key, const Tensor& grad, const Tensor& self,
                    const Rest&... rest) {
    const int64_t plane = c10::multiply_integers(self.sizes().slice(self.dim() - dims));
    const Tensor index = in_all_planes(last_of(rest...), self.numel() / plane, plane);
    const Tensor sums = sums_at(key, self.numel(), index, grad).view(self.sizes());
    return keeps_layout ? sums.contiguous(self.suggest_memory_format()) : sums;
  }

 private:
  static const Tensor& last_of(const auto&... rest) {
    return std::get<sizeof...(rest) - 1>(std::tie(rest...));
  }
};

// Of several values with one index, the deterministic index_put writes the same one in each run.
template <typename AtenOp, Operator op, int64_t dims>
struct MaxUnpool {
  using Aten = AtenOp;
  static constexpr Operator kOperator = op;

  static Reason decide(const Tensor& self, const Tensor& indices, c10::SymIntArrayRef output_size,
                       const auto&...) {
    const Reason known = decide_floats(self);
    if (known != Reason::kTaken) return known;
    const auto is_positive = [](const c10::SymInt& size) { return size.expect_int() > 0; };
    return taken_if(are_indices(indices, self) && output_size.size() == dims &&
                    std::all_of(output_size.begin(), output_size.end(), is_positive) &&
                    (self.dim() == dims + 1 || self.dim() == dims + 2));
  }
  static Tensor run(c10::DispatchKeySet, const Tensor& self, const Tensor& indices,
                    c10::SymIntArrayRef output_size, const auto&...) {
    at::DimVector sizes(self.sizes().slice(0, self.dim() - dims));
    const int64_t planes = c10::multiply_integers(sizes);
    for (const c10::SymInt& size : output_size) sizes.push_back(size.expect_int());
    const Tensor result = at::zeros(sizes, self.options());
    const Tensor index = in_all_planes(indices, planes, result.numel() / planes);
    put_at(result.view({-1}), index, self, /*accumulate=*/false);
    return result;
  }
};

// ---------------------------------------------------------------- writes and counts at indices

struct Put {
  using Aten = at::_ops::put_;
  static constexpr Operator kOperator = operator_named("put_");

  static Reason decide(const Tensor& self, const Tensor& index, const Tensor& source, bool) {
    if (!is_deterministic()) return Reason::kAtenIsFaster;
    return taken_if(is_plain(self) && is_plain(index) && is_plain(source) &&
                    index.scalar_type() == at::kLong && index.numel() == source.numel() &&
                    self.scalar_type() == source.scalar_type() &&
                    on_device_of(self, {index, source}) && has_no_overlap(self) &&
                    !self.is_alias_of(index) && !self.is_alias_of(source));
  }
  static Tensor& run(c10::DispatchKeySet, Tensor& self, const Tensor& index, const Tensor& source,
                     bool accumulate) {
    const Tensor flat = self.reshape({-1});
    put_at(flat, index, source, accumulate);
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
    return taken_if(bins > 0 && !min.isComplex() && !max.isComplex());
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

// Maxima of bags. `maximum` has the row that each value is from, or -1.
struct EmbeddingBagBackward {
  using Aten = at::_ops::_embedding_bag_dense_backward;
  static constexpr Operator kOperator = operator_named("_embedding_bag_dense_backward");
  static constexpr int64_t kMax = 2;

  static Reason decide(const Tensor& grad, const Tensor&, const Tensor&, const Tensor&,
                       const Tensor& maximum, const c10::SymInt& rows, bool, int64_t mode,
                       const TensorOption&, int64_t) {
    if (mode != kMax) return Reason::kAtenIsFaster;
    const Reason known = decide_floats(grad);
    if (known != Reason::kTaken) return known;
    return taken_if(grad.dim() == 2 && is_plain(maximum) && is_index(maximum) &&
                    maximum.sizes() == grad.sizes() && on_device_of(grad, {maximum}) &&
                    rows.expect_int() > 0);
  }
  static Tensor run(c10::DispatchKeySet key, const Tensor& grad, const Tensor&, const Tensor&,
                    const Tensor&, const Tensor& maximum, const c10::SymInt& rows, bool, int64_t,
                    const TensorOption&, int64_t) {
    const int64_t features = grad.size(1);
    const Tensor index = maximum.to(at::kLong).clamp_min(0).mul_(features);
    index.add_(at::arange(features, index.options()));
    const Tensor values = grad.masked_fill(maximum.lt(0), 0);
    return sums_at(key, rows.expect_int() * features, index, values).view({-1, features});
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
    return taken_if(d.has_value() && is_plain(index) && is_index(index) && index.dim() == 1 &&
                    on_device_of(self, {index}) && has_rows_of(self, source, *d) &&
                    source.size(*d) == index.numel() && has_no_overlap(self) &&
                    !self.is_alias_of(source) &&
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

struct NllLoss2d {
  using Aten = at::_ops::nll_loss2d_forward;
  static constexpr Operator kOperator = operator_named("nll_loss2d_forward");

  static Reason decide(const Tensor& self, const Tensor& target, const TensorOption& weight,
                       int64_t, const c10::SymInt&) {
    const Reason known = is_given(weight) ? decide_floats(self, *weight) : decide_floats(self);
    if (known != Reason::kTaken) return known;
    return taken_if(self.dim() == 4 && is_plain(target) && target.dim() == 3 &&
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

// ---------------------------------------------------------------- operators

#define GPUOPT_OPERATOR(Name, Struct, aten, ...) \
  using Name = Struct<at::_ops::aten, operator_named(#aten), __VA_ARGS__>

GPUOPT_OPERATOR(Reflection1d, PaddingBackward, reflection_pad1d_backward, 1, true);
GPUOPT_OPERATOR(Reflection2d, PaddingBackward, reflection_pad2d_backward, 2, true);
GPUOPT_OPERATOR(Reflection3d, PaddingBackward, reflection_pad3d_backward, 3, true);
GPUOPT_OPERATOR(Replication1d, PaddingBackward, replication_pad1d_backward, 1, false);
GPUOPT_OPERATOR(Replication2d, PaddingBackward, replication_pad2d_backward, 2, false);
GPUOPT_OPERATOR(Replication3d, PaddingBackward, replication_pad3d_backward, 3, false);
GPUOPT_OPERATOR(MaxPool3d, MaxPoolBackward, max_pool3d_with_indices_backward, 3, true);
GPUOPT_OPERATOR(AdaptiveMax2d, MaxPoolBackward, adaptive_max_pool2d_backward, 2, true);
GPUOPT_OPERATOR(AdaptiveMax3d, MaxPoolBackward, adaptive_max_pool3d_backward, 3, false);
GPUOPT_OPERATOR(FractionalMax2d, MaxPoolBackward, fractional_max_pool2d_backward, 2, false);
GPUOPT_OPERATOR(FractionalMax3d, MaxPoolBackward, fractional_max_pool3d_backward, 3, false);
GPUOPT_OPERATOR(MaxUnpool2d, MaxUnpool, max_unpool2d, 2);
GPUOPT_OPERATOR(MaxUnpool3d, MaxUnpool, max_unpool3d, 3);
using MedianDim = Median<at::_ops::median_dim, operator_named("median"), false>;
using NanmedianDim = Median<at::_ops::nanmedian_dim, operator_named("nanmedian"), true>;

}  // namespace gpuopt::overriding
