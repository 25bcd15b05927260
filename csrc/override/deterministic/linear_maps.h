// Gradients of linear maps, for which ATen adds atomically: interpolation and averages of windows.
// Each output of a map is a weighted sum of a few inputs. Its gradient is a product with the
// transposed sparse matrix, one dimension after the other where the map allows it. They are taken
// while torch.use_deterministic_algorithms is on.
#pragma once

#include <array>
#include <optional>

#include "override/deterministic/shared.h"
#include "override/scatter_reduce.h"
#include "segment/segment_ops.h"
#include "spmm/binding/spmm_ops.h"

namespace gpuopt::overriding {

// The inputs of each output, `count` for each. The index `rows` stands for none.
struct LinearMap {
  Tensor index;  // (outputs * count)
  int64_t count;
  TensorOption weight;    // of the dtype of gradients; 1 if missing
  bool has_none = false;  // whether some are missing

  // (.., outputs, features) -> (.., rows, features)
  Tensor gradient(c10::DispatchKeySet key, const Tensor& grad, int64_t rows) const {
    const auto [ptr, perm] =
        redispatch(segment::GroupBy{index, rows + (has_none ? 1 : 0), std::nullopt}, key);
    const TensorOption none, output = count == 1 ? perm : perm.div(count, "floor");
    const TensorOption entry = weight.has_value() ? TensorOption(perm) : none;
    return redispatch(spmm::Spmm{ptr, output, entry, weight, grad, "sum", none, none, none}, key)
        .narrow(-2, 0, rows);
  }
};

// The gradient of a map of dimension `dim`, which has `rows` inputs.
inline Tensor along(c10::DispatchKeySet key, const Tensor& grad, int64_t dim, const LinearMap& map,
                    int64_t rows) {
  at::DimVector sizes(grad.sizes());
  sizes[dim] = rows;
  const auto [before, outputs, after] = RowsOf(grad, dim);
  if (after > 1) {
    return map.gradient(key, grad.reshape({before, outputs, after}), rows).reshape(sizes);
  }
  const Tensor columns = grad.reshape({before, outputs}).t().contiguous();  // for wide rows
  return map.gradient(key, columns, rows).t().contiguous().view(sizes);
}

// ---------------------------------------------------------------- interpolation

enum class Curve : uint8_t { kLinear, kCubic };

// The weight of an input at a distance. `a` is the slope of the cubic at 1.
inline Tensor weight_at(const Tensor& distance, Curve curve, double a) {
  if (curve == Curve::kLinear) return distance.neg().add_(1).clamp_min_(0);
  const Tensor &x = distance, near = ((a + 2) * x - (a + 3)) * x * x + 1;
  const Tensor far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return at::where(x.le(1), near, far.masked_fill(x.ge(2), 0));
}

// Interpolation at `outputs` positions of a dimension with `rows`, computed in float64.
inline LinearMap interpolation(int64_t rows, int64_t outputs, bool align_corners,
                               std::optional<double> factor, Curve curve, bool antialias,
                               const at::TensorOptions& options) {
  double scale = factor.value_or(0) > 0 ? 1 / *factor : static_cast<double>(rows) / outputs;
  if (align_corners) scale = outputs > 1 ? static_cast<double>(rows - 1) / (outputs - 1) : 0;
  const int64_t half = curve == Curve::kLinear ? 1 : 2;
  const Tensor output = at::arange(outputs, options.dtype(at::kDouble)).unsqueeze_(1);
  Tensor index, weight;
  if (antialias) {
    const double stretch = std::max(scale, 1.0), support = half * stretch;
    const Tensor center = (output + 0.5) * scale;
    const Tensor first = (center - (support - 0.5)).trunc_().clamp_min_(0);
    const Tensor last = (center + (support + 0.5)).trunc_().clamp_max_(rows);
    const auto longest = static_cast<int64_t>(std::ceil(support)) * 2 + 1;
    index = first + at::arange(longest, output.options());
    weight = weight_at(((index - center + 0.5) / stretch).abs_(), curve, -0.5);
    weight.masked_fill_(index.ge(last), 0);
    weight.div_(weight.sum(1, /*keepdim=*/true));
  } else {
    Tensor position = align_corners ? output * scale : (output + 0.5) * scale - 0.5;
    if (curve == Curve::kLinear) position.clamp_min_(0);
    index = position.floor() + at::arange(1 - half, half + 1, output.options());
    weight = weight_at((index - position).abs_(), curve, -0.75);
  }
  const int64_t count = index.size(1);
  index = index.clamp_(0, rows - 1).to(at::kLong).view({-1});
  return {index, count, weight.to(options.dtype()).view({-1})};
}

template <typename AtenOp, Operator op, int64_t dims, Curve curve, bool antialias = false>
struct InterpolationBackward {
  using Aten = AtenOp;
  static constexpr Operator kOperator = op;

  static Reason decide(const Tensor& grad, c10::SymIntArrayRef output_size,
                       c10::SymIntArrayRef input_size, bool, const auto&...) {
    const Reason known = decide_floats(grad);
    if (known != Reason::kTaken) return known;
    bool fit = is_plain(grad) && grad.dim() == dims + 2 && output_size.size() == dims &&
               input_size.size() == dims + 2 && grad.size(0) == input_size[0] &&
               grad.size(1) == input_size[1];
    for (int64_t d = 0; fit && d < dims; ++d) {
      fit = grad.size(d + 2) == output_size[d] && input_size[d + 2].expect_int() > 0;
    }
    return taken_if(fit);
  }
  static Tensor run(c10::DispatchKeySet key, const Tensor& grad, c10::SymIntArrayRef,
                    c10::SymIntArrayRef input_size, bool align_corners, const auto&... factors) {
    const std::array<std::optional<double>, dims> factor{factors...};
    Tensor sums = grad.to(wide_type(grad));
    for (int64_t d = 0; d < dims; ++d) {
      const int64_t rows = input_size[d + 2].expect_int();
      const LinearMap map = interpolation(rows, grad.size(d + 2), align_corners, factor[d], curve,
                                          antialias, sums.options());
      sums = along(key, sums, d + 2, map, rows);
    }
    return sums.to(grad.scalar_type()).contiguous(grad.suggest_memory_format());
  }
};

// ---------------------------------------------------------------- averages of windows

// The sums over windows, of the positions from `first` to before `last`.
inline Tensor over_windows(c10::DispatchKeySet key, const Tensor& grad, int64_t dim,
                           const Tensor& first, const Tensor& last, int64_t longest, int64_t rows) {
  const Tensor index = first.unsqueeze(1) + at::arange(longest, first.options());
  const Tensor outside = index.lt(0).logical_or_(index.ge(last.unsqueeze(1)));
  const LinearMap map{index.masked_fill(outside, rows).view({-1}), longest, std::nullopt, true};
  return along(key, grad, dim, map, rows);
}

inline Tensor divided_along(const Tensor& grad, int64_t dim, const Tensor& lengths) {
  at::DimVector sizes(grad.dim(), 1);
  sizes[dim] = grad.size(dim);
  return grad.div(lengths.to(grad.scalar_type()).view(sizes));
}

template <typename AtenOp, Operator op, int64_t dims>
struct AdaptiveAverageBackward {
  using Aten = AtenOp;
  static constexpr Operator kOperator = op;

  static Reason decide(const Tensor& grad, const Tensor& self) {
    const Reason known = decide_floats(grad, self);
    return known == Reason::kTaken ? taken_if(has_planes_of(grad, self, dims)) : known;
  }
  static Tensor run(c10::DispatchKeySet key, const Tensor& grad, const Tensor& self) {
    if (grad.numel() == 0) return at::zeros(self.sizes(), self.options());
    Tensor sums = grad.to(wide_type(grad));
    for (int64_t d = self.dim() - dims; d < self.dim(); ++d) {
      const int64_t rows = self.size(d), outputs = grad.size(d);
      const Tensor begin = at::arange(outputs, grad.options().dtype(at::kLong)).mul_(rows);
      const Tensor first = begin.div(outputs, "floor");
      const Tensor last = begin.add(rows + outputs - 1).div_(outputs, "floor");
      const int64_t longest = (rows + outputs - 1) / outputs + 1;
      sums = over_windows(key, divided_along(sums, d, last - first), d, first, last, longest, rows);
    }
    const Tensor result = sums.to(grad.scalar_type());
    return dims == 2 ? result.contiguous(self.suggest_memory_format()) : result;
  }
};

struct AveragePool3dBackward {
  using Aten = at::_ops::avg_pool3d_backward;
  static constexpr Operator kOperator = operator_named("avg_pool3d_backward");

  static Reason decide(const Tensor& grad, const Tensor& self, at::IntArrayRef kernel,
                       at::IntArrayRef stride, at::IntArrayRef padding, bool, bool,
                       std::optional<int64_t> divisor) {
    const Reason known = decide_floats(grad, self);
    if (known != Reason::kTaken) return known;
    const auto has_sizes = [](at::IntArrayRef sizes) {
      return sizes.size() == 1 || sizes.size() == 3;
    };
    return taken_if(has_planes_of(grad, self, 3) && has_sizes(kernel) && has_sizes(padding) &&
                    (stride.empty() || has_sizes(stride)) && divisor != 0);
  }
  static Tensor run(c10::DispatchKeySet key, const Tensor& grad, const Tensor& self,
                    at::IntArrayRef kernel, at::IntArrayRef stride, at::IntArrayRef padding, bool,
                    bool count_include_pad, std::optional<int64_t> divisor) {
    const auto of = [](at::IntArrayRef sizes, int64_t k) {
      return sizes[sizes.size() == 1 ? 0 : k];
    };
    if (grad.numel() == 0) return at::zeros(self.sizes(), self.options());
    Tensor sums = grad.to(wide_type(grad));
    if (divisor.has_value()) sums = sums.div(*divisor);
    for (int64_t k = 0; k < 3; ++k) {
      const int64_t d = self.dim() - 3 + k, rows = self.size(d), length = of(kernel, k);
      const int64_t step = stride.empty() ? length : of(stride, k), pad = of(padding, k);
      const Tensor first = at::arange(grad.size(d), grad.options().dtype(at::kLong)) * step - pad;
      const Tensor padded = (first + length).clamp_max_(rows + pad), last = padded.clamp_max(rows);
      if (!divisor.has_value()) {
        const Tensor lengths = count_include_pad ? padded - first : last - first.clamp_min(0);
        sums = divided_along(sums, d, lengths);
      }
      sums = over_windows(key, sums, d, first, last, length, rows);
    }
    return sums.to(grad.scalar_type());
  }
};

// ---------------------------------------------------------------- operators

GPUOPT_OPERATOR(LinearBackward, InterpolationBackward, upsample_linear1d_backward, 1,
                Curve::kLinear);
GPUOPT_OPERATOR(BilinearBackward, InterpolationBackward, upsample_bilinear2d_backward, 2,
                Curve::kLinear);
GPUOPT_OPERATOR(TrilinearBackward, InterpolationBackward, upsample_trilinear3d_backward, 3,
                Curve::kLinear);
GPUOPT_OPERATOR(BicubicBackward, InterpolationBackward, upsample_bicubic2d_backward, 2,
                Curve::kCubic);
GPUOPT_OPERATOR(SmoothBilinearBackward, InterpolationBackward, _upsample_bilinear2d_aa_backward, 2,
                Curve::kLinear, true);
GPUOPT_OPERATOR(SmoothBicubicBackward, InterpolationBackward, _upsample_bicubic2d_aa_backward, 2,
                Curve::kCubic, true);
GPUOPT_OPERATOR(AdaptiveAverage2dBackward, AdaptiveAverageBackward, _adaptive_avg_pool2d_backward,
                2);
GPUOPT_OPERATOR(AdaptiveAverage3dBackward, AdaptiveAverageBackward, _adaptive_avg_pool3d_backward,
                3);

}  // namespace gpuopt::overriding
