// Group norm and batch norm, and their gradients. F.instance_norm calls batch norm, with
// the channels of all samples as the channels of one.
//
// F.batch_norm calls cuDNN for float32, and for float16 with float32 weights. cuDNN's passes share
// statistics and a reserve. An empty reserve is gpuopt's, or says that cuDNN keeps nothing in it.
// Both passes have one name and decide alike, so that cuDNN never gets the reserve of another
// forward pass while the override is on. Outside of it, cuDNN computes from the statistics alone,
// or raises an error.
#pragma once

#include <ATen/ops/_native_batch_norm_legit_ops.h>
#include <ATen/ops/cudnn_batch_norm_backward_ops.h>
#include <ATen/ops/cudnn_batch_norm_ops.h>
#include <ATen/ops/native_batch_norm_backward_ops.h>
#include <ATen/ops/native_batch_norm_ops.h>
#include <ATen/ops/native_group_norm_backward_ops.h>
#include <ATen/ops/native_group_norm_ops.h>
#include <c10/util/strides.h>

#include <array>
#include <tuple>

#include "norm/binding/norm_channels_ops.h"
#include "norm/binding/norm_check.h"
#include "norm/norm_channels_plan.h"
#include "override/newer_aten.h"
#include "override/norm.h"

namespace gpuopt::overriding {

using ChannelNormResult = std::tuple<Tensor, Tensor, Tensor>;
using CudnnNormResult = std::tuple<Tensor, Tensor, Tensor, Tensor>;

// What a call normalises. `known` is kTaken if the input is supported.
struct ChannelNormCall {
  Reason known = Reason::kUnsupported;
  policy::ChannelNorm norm;
};

// Results have the strides of the input. They are ATen's if these are the ones of a new tensor, or
// of a new channels-last image.
inline ChannelNormCall channel_norm_call(const Tensor& input) {
  // Most calls of a model that is bound by the host end here.
  if (input.numel() < policy::kSmallestChannelNorm && !takes_always()) return {Reason::kSize};
  if (!is_plain(input) || input.dim() < 2) return {};
  if (!is_measured(input.scalar_type())) return {Reason::kDtype};
  const int64_t channels = input.size(1), planes = input.size(0) * channels;
  if (planes > kMaxIndex32 - norm::kWalkThreads) return {};
  ChannelNormCall call{Reason::kTaken,
                       {input.numel(), channels, input.numel() / planes,
                        static_cast<int64_t>(input.element_size())}};
  const bool is_matrix = input.dim() == 2, is_plane = call.norm.plane > 1;
  if (input.strides() == c10::contiguous_strides(input.sizes())) {
    call.norm.is_channels_last = is_matrix;
    return is_matrix || is_plane ? call : ChannelNormCall{Reason::kLayout};
  }
  call.norm.is_channels_last = true;
  const bool is_image = input.dim() == 4 && is_plane && channels > 1 &&
                        input.strides() == c10::get_channels_last_strides_2d(input.sizes());
  return is_image ? call : ChannelNormCall{Reason::kLayout};
}

// Whether all parameters that are given have a value for each channel and one dtype: the input's,
// or float32 beside a half type if `may_be_wide`.
inline bool are_parameters(const Tensor& input, bool may_be_wide,
                           std::initializer_list<const TensorOption*> parameters) {
  std::optional<at::ScalarType> common;
  for (const TensorOption* parameter : parameters) {
    if (!is_given(*parameter)) continue;
    const Tensor& tensor = **parameter;
    const at::ScalarType dtype = tensor.scalar_type();
    const bool is_wide = may_be_wide && input.element_size() == 2 && dtype == at::kFloat;
    if (!is_plain(tensor) || !on_device_of(input, {tensor}) || tensor.dim() != 1 ||
        tensor.size(0) != input.size(1) || !(dtype == input.scalar_type() || is_wide) ||
        dtype != common.value_or(dtype)) {
      return false;
    }
    common = dtype;
  }
  return true;
}

inline bool are_statistics(const Tensor& input, int64_t count, at::ScalarType dtype,
                           std::initializer_list<const TensorOption*> statistics) {
  for (const TensorOption* statistic : statistics) {
    if (!is_given(*statistic) || !is_plain(**statistic) || (*statistic)->numel() != count ||
        (*statistic)->scalar_type() != dtype || !on_device_of(input, {**statistic})) {
      return false;
    }
  }
  return true;
}

// What policy says of a call, if `is_supported()`.
template <typename Supported, typename Policy>
Reason decide_channel_norm(const ChannelNormCall& call, Supported is_supported, Policy policy) {
  if (call.known != Reason::kTaken) return call.known;
  if (!is_supported()) return Reason::kUnsupported;
  return unless_always([&] { return unless_newer(kNewNorms, [&] { return policy(call.norm); }); });
}

// ---------------------------------------------------------------- group norm

// ATen's statistics have the dtype of the input, and its CUDA kernels refuse weights of another
// one. F.group_norm copies channels-last inputs before it calls the operator.
inline ChannelNormCall group_norm_call(const Tensor& input, const c10::SymInt& samples,
                                       const c10::SymInt& channels, const c10::SymInt& plane,
                                       int64_t groups) {
  const ChannelNormCall call = channel_norm_call(input);
  if (call.known != Reason::kTaken) return call;
  if (call.norm.is_channels_last) return {Reason::kLayout};
  const bool is_described = samples.maybe_as_int() == input.size(0) &&
                            channels.maybe_as_int() == call.norm.channels &&
                            plane.maybe_as_int() == call.norm.plane;
  return is_described && groups > 0 && call.norm.channels % groups == 0 ? call : ChannelNormCall{};
}

struct NativeGroupNorm {
  using Aten = at::_ops::native_group_norm;
  static constexpr Operator kOperator = operator_named("native_group_norm");

  static Reason decide(const Tensor& input, const TensorOption& weight, const TensorOption& bias,
                       const c10::SymInt& samples, const c10::SymInt& channels,
                       const c10::SymInt& plane, int64_t groups, double) {
    return decide_channel_norm(
        group_norm_call(input, samples, channels, plane, groups),
        [&] { return are_parameters(input, /*may_be_wide=*/false, {&weight, &bias}); },
        policy::group_norm);
  }
  static ChannelNormResult run(c10::DispatchKeySet key, const Tensor& input,
                               const TensorOption& weight, const TensorOption& bias,
                               const c10::SymInt&, const c10::SymInt&, const c10::SymInt&,
                               int64_t groups, double eps) {
    const auto [out, mean, rstd] =
        redispatch(norm::GroupNormGroups{input, weight, bias, groups, eps}, key);
    return {out, mean.to(input.scalar_type()), rstd.to(input.scalar_type())};
  }
};

// As NativeLayerNormBackward (norm.h).
struct NativeGroupNormBackward {
  using Aten = at::_ops::native_group_norm_backward;
  static constexpr Operator kOperator = operator_named("native_group_norm_backward");

  static Reason decide(const Tensor& grad, const Tensor& input, const Tensor& mean,
                       const Tensor& rstd, const TensorOption& weight, const c10::SymInt& samples,
                       const c10::SymInt& channels, const c10::SymInt& plane, int64_t groups,
                       std::array<bool, 3> mask) {
    const ChannelNormCall call = group_norm_call(input, samples, channels, plane, groups);
    const auto is_supported = [&] {
      const TensorOption statistics[] = {mean, rstd};
      return are_parameters(input, /*may_be_wide=*/false, {&weight}) && is_gradient(grad, input) &&
             grad.strides() == input.strides() && (is_given(weight) || !(mask[1] || mask[2])) &&
             are_statistics(input, input.size(0) * groups, input.scalar_type(),
                            {&statistics[0], &statistics[1]});
    };
    return decide_channel_norm(call, is_supported, [&](const policy::ChannelNorm& norm) {
      return mask[0] ? policy::group_norm(norm) : Reason::kNotMeasured;
    });
  }
  static ChannelNormResult run(c10::DispatchKeySet key, const Tensor& grad, const Tensor& input,
                               const Tensor& mean, const Tensor& rstd, const TensorOption& weight,
                               const c10::SymInt&, const c10::SymInt&, const c10::SymInt&,
                               int64_t groups, std::array<bool, 3> mask) {
    return redispatch(norm::GroupNormGradients{grad, input, mean, rstd, weight, groups, /*eps=*/0,
                                               mask, std::nullopt, /*activation=*/0},
                      key);
  }
};

// ---------------------------------------------------------------- batch norm

// The variance of one value is not defined.
inline ChannelNormCall batch_norm_call(const Tensor& input) {
  const ChannelNormCall call = channel_norm_call(input);
  const bool is_single = call.known == Reason::kTaken && call.norm.values == call.norm.channels;
  return is_single ? ChannelNormCall{} : call;
}

inline bool are_running(const TensorOption& mean, const TensorOption& variance) {
  if (is_given(mean) != is_given(variance)) return false;
  return !is_given(mean) || (mean->is_contiguous() && variance->is_contiguous());
}

struct NativeBatchNorm {
  using Aten = at::_ops::native_batch_norm;
  static constexpr Operator kOperator = operator_named("native_batch_norm");

  static Reason decide(const Tensor& input, const TensorOption& weight, const TensorOption& bias,
                       const TensorOption& running_mean, const TensorOption& running_var,
                       bool training, double, double) {
    const auto is_supported = [&] {
      return are_running(running_mean, running_var) && (training || is_given(running_mean)) &&
             are_parameters(input, /*may_be_wide=*/true,
                            {&weight, &bias, &running_mean, &running_var});
    };
    return decide_channel_norm(batch_norm_call(input), is_supported,
                               [&](const policy::ChannelNorm& norm) {
                                 return training ? policy::batch_norm(norm, /*is_backward=*/false)
                                                 : policy::batch_norm_evaluation(norm);
                               });
  }
  static ChannelNormResult run(c10::DispatchKeySet key, const Tensor& input,
                               const TensorOption& weight, const TensorOption& bias,
                               const TensorOption& running_mean, const TensorOption& running_var,
                               bool training, double momentum, double eps) {
    if (!training) {
      const auto [out, mean, rstd, variance] = redispatch(
          norm::BatchNormChannels{input, weight, bias, running_mean, running_var, eps}, key);
      return {out, mean, rstd};
    }
    return redispatch(
        norm::BatchNormTraining{input, weight, bias, running_mean, running_var, momentum, eps},
        key);
  }
};

// The forms that exported programs call.
struct LegitBatchNorm : NativeBatchNorm {
  using Aten = at::_ops::_native_batch_norm_legit;
};
struct LegitBatchNormWithoutStatistics : NativeBatchNorm {
  using Aten = at::_ops::_native_batch_norm_legit_no_stats;

  static Reason decide(const Tensor& input, const TensorOption& weight, const TensorOption& bias,
                       bool training, double momentum, double eps) {
    return NativeBatchNorm::decide(input, weight, bias, {}, {}, training, momentum, eps);
  }
  static ChannelNormResult run(c10::DispatchKeySet key, const Tensor& input,
                               const TensorOption& weight, const TensorOption& bias, bool training,
                               double momentum, double eps) {
    return NativeBatchNorm::run(key, input, weight, bias, {}, {}, training, momentum, eps);
  }
};

struct NativeBatchNormBackward {
  using Aten = at::_ops::native_batch_norm_backward;
  static constexpr Operator kOperator = operator_named("native_batch_norm_backward");

  static Reason decide(const Tensor& grad, const Tensor& input, const TensorOption& weight,
                       const TensorOption& running_mean, const TensorOption& running_var,
                       const TensorOption& mean, const TensorOption& rstd, bool training, double,
                       std::array<bool, 3> mask) {
    if (!training) return Reason::kNotMeasured;
    const auto is_supported = [&] {
      return is_gradient(grad, input) && (is_given(weight) || !(mask[1] || mask[2])) &&
             are_parameters(input, /*may_be_wide=*/true, {&weight, &running_mean, &running_var}) &&
             are_statistics(input, input.size(1), norm::compute_type(input), {&mean, &rstd});
    };
    return decide_channel_norm(
        batch_norm_call(input), is_supported, [&](const policy::ChannelNorm& norm) {
          if (grad.strides() != input.strides()) return Reason::kLayout;
          return mask[0] ? policy::batch_norm(norm, true) : Reason::kNotMeasured;
        });
  }
  static ChannelNormResult run(c10::DispatchKeySet key, const Tensor& grad, const Tensor& input,
                               const TensorOption& weight, const TensorOption&, const TensorOption&,
                               const TensorOption& mean, const TensorOption& rstd, bool training,
                               double eps, std::array<bool, 3> mask) {
    return redispatch(
        norm::BatchNormGradients{grad, input, *mean, *rstd, weight, training, eps, mask}, key);
  }
};

// ---------------------------------------------------------------- cuDNN

// cuDNN refuses bfloat16 with float32 weights, and float16 with others.
inline ChannelNormCall cudnn_norm_call(const Tensor& input, const Tensor& weight) {
  const ChannelNormCall call = batch_norm_call(input);
  if (call.known != Reason::kTaken) return call;
  if (input.scalar_type() == at::kBFloat16) return {Reason::kDtype};
  const bool fits = weight.defined() && weight.scalar_type() == norm::compute_type(input);
  return fits ? call : ChannelNormCall{};
}

struct CudnnBatchNorm {
  using Aten = at::_ops::cudnn_batch_norm;
  static constexpr Operator kOperator = operator_named("cudnn_batch_norm");

  static Reason decide(const Tensor& input, const Tensor& weight, const TensorOption& bias,
                       const TensorOption& running_mean, const TensorOption& running_var,
                       bool training, double, double) {
    const auto is_supported = [&] {
      const TensorOption given = weight;
      return is_given(bias) && weight.is_contiguous() && bias->is_contiguous() &&
             are_running(running_mean, running_var) && (training || is_given(running_mean)) &&
             are_parameters(input, /*may_be_wide=*/true,
                            {&given, &bias, &running_mean, &running_var});
    };
    return decide_channel_norm(cudnn_norm_call(input, weight), is_supported,
                               training ? policy::cudnn_batch_norm : policy::batch_norm_evaluation);
  }
  static CudnnNormResult run(c10::DispatchKeySet key, const Tensor& input, const Tensor& weight,
                             const TensorOption& bias, const TensorOption& running_mean,
                             const TensorOption& running_var, bool training, double momentum,
                             double eps) {
    const auto [out, mean, rstd] = NativeBatchNorm::run(key, input, weight, bias, running_mean,
                                                        running_var, training, momentum, eps);
    const Tensor reserve = at::empty({0}, input.options().dtype(at::kByte));
    if (training) return {out, mean, rstd, reserve};
    const Tensor none = at::empty({0}, mean.options());
    return {out, none, none.clone(), reserve};
  }
};

struct CudnnBatchNormBackward {
  using Aten = at::_ops::cudnn_batch_norm_backward;
  static constexpr Operator kOperator = CudnnBatchNorm::kOperator;

  static Reason decide(const Tensor& input, const Tensor& grad, const Tensor& weight,
                       const TensorOption&, const TensorOption&, const TensorOption& mean,
                       const TensorOption& rstd, double, const Tensor& reserve) {
    if (reserve.numel() > 0) return Reason::kUnsupported;
    const auto is_supported = [&] {
      const TensorOption given = weight;
      return is_gradient(grad, input) && are_parameters(input, /*may_be_wide=*/true, {&given}) &&
             are_statistics(input, input.size(1), norm::compute_type(input), {&mean, &rstd});
    };
    return decide_channel_norm(cudnn_norm_call(input, weight), is_supported,
                               policy::cudnn_batch_norm);
  }
  static ChannelNormResult run(c10::DispatchKeySet key, const Tensor& input, const Tensor& grad,
                               const Tensor& weight, const TensorOption&, const TensorOption&,
                               const TensorOption& mean, const TensorOption& rstd, double eps,
                               const Tensor&) {
    const std::array mask{true, true, true};
    return redispatch(
        norm::BatchNormGradients{grad, input, *mean, *rstd, weight, /*training=*/true, eps, mask},
        key);
  }
};

}  // namespace gpuopt::overriding
