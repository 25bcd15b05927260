// Layer norm and RMS norm, and their gradients. F.rms_norm calls _fused_rms_norm if the weight has
// the input's dtype.
#pragma once

#include <ATen/ops/_fused_rms_norm_backward_ops.h>
#include <ATen/ops/_fused_rms_norm_ops.h>
#include <ATen/ops/native_layer_norm_backward_ops.h>
#include <ATen/ops/native_layer_norm_ops.h>

#include <array>
#include <tuple>

#include "norm/binding/norm_check.h"
#include "override/newer_aten.h"
#include "override/policy.h"
#include "override/predicates.h"

namespace gpuopt::overriding {

using LayerNormResult = std::tuple<Tensor, Tensor, Tensor>;
using RmsNormResult = std::tuple<Tensor, Tensor>;

// ATen has integers in some schemas, and symbolic ones in others.
inline std::optional<at::IntArrayRef> concrete(at::IntArrayRef sizes) { return sizes; }
inline std::optional<at::IntArrayRef> concrete(c10::SymIntArrayRef sizes) {
  return c10::asIntArrayRefSlowOpt(sizes);
}

// What a call normalises. `known` is kTaken if the arguments are supported.
struct NormCall {
  Reason known = Reason::kUnsupported;
  policy::NormRows rows;
};

// Whether a tensor of the parameters' shape has the dtype and the device of the input. ATen's CUDA
// kernels refuse others.
inline bool is_parameter(const TensorOption& parameter, const Tensor& input,
                         at::IntArrayRef shape) {
  if (!is_given(parameter)) return true;
  return is_plain(*parameter) && parameter->scalar_type() == input.scalar_type() &&
         parameter->sizes() == shape && on_device_of(input, {*parameter});
}

inline NormCall norm_call(const Tensor& input, const auto& normalized_shape,
                          std::initializer_list<const TensorOption*> parameters) {
  // Most calls of a model that is bound by the host end here.
  if (input.numel() < policy::kSmallestNorm && !takes_always()) return {Reason::kSize};
  if (!is_plain(input)) return {};
  if (!is_measured(input.scalar_type())) return {Reason::kDtype};
  const std::optional<at::IntArrayRef> shape = concrete(normalized_shape);
  if (!shape.has_value() || shape->empty()) return {};
  const int64_t outer = input.dim() - static_cast<int64_t>(shape->size());
  if (outer < 0 || input.sizes().slice(static_cast<size_t>(outer)) != *shape) return {};
  for (const TensorOption* parameter : parameters) {
    if (!is_parameter(*parameter, input, *shape)) return {};
  }
  const int64_t length = c10::multiply_integers(*shape);
  const policy::NormRows rows{input.numel() / length, length,
                              static_cast<int64_t>(input.element_size())};
  return {rows.count <= kMaxIndex32 ? Reason::kTaken : Reason::kUnsupported, rows};
}

// What policy says of a call that is supported.
template <typename Policy>
Reason decide_norm(const NormCall& call, Policy policy) {
  if (call.known != Reason::kTaken) return call.known;
  return unless_always([&] { return unless_newer(kNewNorms, [&] { return policy(call.rows); }); });
}

// Whether a statistic has a value of each row, in any shape. Newer kernels of ATen flatten them.
inline bool is_statistic(const Tensor& statistic, const NormCall& call, const Tensor& input) {
  return is_plain(statistic) && statistic.numel() == call.rows.count &&
         statistic.scalar_type() == norm::compute_type(input) && on_device_of(input, {statistic});
}

inline bool is_gradient(const Tensor& grad, const Tensor& input) {
  return is_plain(grad) && grad.scalar_type() == input.scalar_type() &&
         grad.sizes() == input.sizes() && on_device_of(input, {grad});
}

struct NativeLayerNorm {
  using Aten = at::_ops::native_layer_norm;
  static constexpr Operator kOperator = operator_named("native_layer_norm");

  static Reason decide(const Tensor& input, const auto& shape, const TensorOption& weight,
                       const TensorOption& bias, double) {
    return decide_norm(norm_call(input, shape, {&weight, &bias}), policy::norm);
  }
  static LayerNormResult run(c10::DispatchKeySet key, const Tensor& input, const auto& shape,
                             const TensorOption& weight, const TensorOption& bias, double eps) {
    const auto dims = static_cast<int64_t>(shape.size());
    return redispatch(norm::LayerNormRows{input, weight, bias, dims, eps}, key);
  }
};

struct FusedRmsNorm {
  using Aten = at::_ops::_fused_rms_norm;
  static constexpr Operator kOperator = operator_named("_fused_rms_norm");

  static Reason decide(const Tensor& input, const auto& shape, const TensorOption& weight,
                       std::optional<double>) {
    return decide_norm(norm_call(input, shape, {&weight}), policy::norm);
  }
  static RmsNormResult run(c10::DispatchKeySet key, const Tensor& input, const auto& shape,
                           const TensorOption& weight, std::optional<double> eps) {
    const auto dims = static_cast<int64_t>(shape.size());
    return redispatch(
        norm::RmsNormRows{input, weight, dims, eps.value_or(norm::default_eps(input))}, key);
  }
};

// A gradient of a weight that is not given is an error in ATen. `eps` is 0, because only
// derivatives of the gradients need it, and autograd lies above.
struct NativeLayerNormBackward {
  using Aten = at::_ops::native_layer_norm_backward;
  static constexpr Operator kOperator = operator_named("native_layer_norm_backward");

  static Reason decide(const Tensor& grad, const Tensor& input, const auto& shape,
                       const Tensor& mean, const Tensor& rstd, const TensorOption& weight,
                       const TensorOption& bias, std::array<bool, 3> mask) {
    NormCall call = norm_call(input, shape, {&weight, &bias});
    const bool fits = is_gradient(grad, input) && is_statistic(mean, call, input) &&
                      is_statistic(rstd, call, input) && (!mask[1] || is_given(weight)) &&
                      (!mask[2] || is_given(bias));
    if (call.known == Reason::kTaken && !fits) call.known = Reason::kUnsupported;
    return decide_norm(call, [&](const policy::NormRows& rows) {
      return policy::norm_backward(rows, mask[0] && mask[1]);
    });
  }
  static LayerNormResult run(c10::DispatchKeySet key, const Tensor& grad, const Tensor& input,
                             const auto& shape, const Tensor& mean, const Tensor& rstd,
                             const TensorOption& weight, const TensorOption&,
                             std::array<bool, 3> mask) {
    const auto dims = static_cast<int64_t>(shape.size());
    return redispatch(norm::LayerNormGradients{grad, input, mean, rstd, weight, dims, /*eps=*/0,
                                               mask, std::nullopt},
                      key);
  }
};

struct FusedRmsNormBackward {
  using Aten = at::_ops::_fused_rms_norm_backward;
  static constexpr Operator kOperator = operator_named("_fused_rms_norm_backward");

  static Reason decide(const Tensor& grad, const Tensor& input, const auto& shape,
                       const Tensor& rstd, const TensorOption& weight, std::array<bool, 2> mask) {
    NormCall call = norm_call(input, shape, {&weight});
    const bool fits = is_gradient(grad, input) && is_statistic(rstd, call, input) &&
                      (!mask[1] || is_given(weight));
    if (call.known == Reason::kTaken && !fits) call.known = Reason::kUnsupported;
    return decide_norm(call, [&](const policy::NormRows& rows) {
      return policy::norm_backward(rows, mask[0] && mask[1]);
    });
  }
  static RmsNormResult run(c10::DispatchKeySet key, const Tensor& grad, const Tensor& input,
                           const auto& shape, const Tensor& rstd, const TensorOption& weight,
                           std::array<bool, 2> mask) {
    const auto dims = static_cast<int64_t>(shape.size());
    return redispatch(
        norm::RmsNormGradients{grad, input, rstd, weight, dims, /*eps=*/0, mask, std::nullopt},
        key);
  }
};

}  // namespace gpuopt::overriding
