// Gradients of maxima of windows, and the inverse of these maxima.
#pragma once

#include <tuple>

#include "override/deterministic/shared.h"
#include "override/newer_aten.h"

namespace gpuopt::overriding {

// ---------------------------------------------------------------- maxima of windows

// The last argument has the position of each maximum in its plane. Some gradients keep the layout
// of the input. ATen `raises` an error, or has a deterministic kernel.
template <typename AtenOp, Operator op, int64_t dims, bool keeps_layout, bool raises = true>
struct MaxPoolBackward {
  using Aten = AtenOp;
  static constexpr Operator kOperator = op;

  template <typename... Rest>
  static Reason decide(const Tensor& grad, const Tensor& self, const Rest&... rest) {
    if (!raises) return Reason::kAtenIsFaster;
    const Reason known = decide_floats(grad, self);
    if (known != Reason::kTaken) return known;
    return taken_if(has_planes_of(grad, self, dims) && are_indices(last_of(rest...), grad));
  }
  template <typename... Rest>
  static Tensor run(c10::DispatchKeySet key, const Tensor& grad, const Tensor& self,
                    const Rest&... rest) {
    if (grad.numel() == 0) return at::zeros(self.sizes(), self.options());
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
    return taken_if(is_plain(self) && are_indices(indices, self) && output_size.size() == dims &&
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

// ---------------------------------------------------------------- operators

GPUOPT_OPERATOR(MaxPool3d, MaxPoolBackward, max_pool3d_with_indices_backward, 3, true,
                !kDeterministicMaxPool3d);
GPUOPT_OPERATOR(AdaptiveMax2d, MaxPoolBackward, adaptive_max_pool2d_backward, 2, true);
GPUOPT_OPERATOR(AdaptiveMax3d, MaxPoolBackward, adaptive_max_pool3d_backward, 3, false);
GPUOPT_OPERATOR(FractionalMax2d, MaxPoolBackward, fractional_max_pool2d_backward, 2, false);
GPUOPT_OPERATOR(FractionalMax3d, MaxPoolBackward, fractional_max_pool3d_backward, 3, false);
GPUOPT_OPERATOR(MaxUnpool2d, MaxUnpool, max_unpool2d, 2);
GPUOPT_OPERATOR(MaxUnpool3d, MaxUnpool, max_unpool3d, 3);

}  // namespace gpuopt::overriding
