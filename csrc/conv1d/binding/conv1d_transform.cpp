// The convolutions under torch.vmap and autocast.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <array>
#include <initializer_list>
#include <vector>

#include "binding/vmap.h"
#include "conv1d/binding/check.h"
#include "conv1d/binding/ops.h"

namespace gpuopt::conv1d {
namespace {

using at::Tensor;
using c10::SymInt;
using c10::SymIntArrayRef;
using Operand = VmapLevel::Operand;
using Mask = std::array<bool, 3>;
using Gradients = std::tuple<Tensor, Tensor, Tensor>;

// ATen's policy under autocast: convolutions are computed in the lower precision, and their
// backward has none.
struct Lower {
  explicit Lower(c10::DeviceType device) : device(device) {}

  auto operator()(const auto& tensor) const {
    const auto dtype = at::autocast::get_lower_precision_fp_from_device_type(device);
    return at::autocast::cached_cast(dtype, tensor, device);
  }

  c10::DeviceType device;
};

// ---------------------------------------------------------------- vmap

// With the examples in front. An operand that all examples share is repeated, without a copy.
Tensor in_front(const Operand& operand, const SymInt& examples) {
  if (operand.batch_dim.has_value()) return operand.value.movedim(*operand.batch_dim, 0);
  auto sizes = operand.value.sym_sizes().vec();
  sizes.insert(sizes.begin(), examples);
  return operand.value.unsqueeze(0).expand_symint(sizes);
}

// (examples, N, ...) of what is (N, ...), or (...) without a batch, to the caller.
Tensor with_batch(const Tensor& front, bool batched) {
  return batched ? front : front.unsqueeze(1);
}

// (examples, N, C, L) with the examples among the channels, (N, examples * C, L), and back.
Tensor into_channels(const Tensor& signals) { return signals.transpose(0, 1).flatten(1, 2); }
Tensor out_of_channels(const Tensor& signals, const SymInt& examples, const SymInt& channels) {
  return signals.unflatten_symint(1, std::array<SymInt, 2>{examples, channels}).transpose(0, 1);
}

// (examples, N, ...) with the examples in the batch, and back.
Tensor into_batch(const Tensor& signals) { return signals.flatten(0, 1); }
Tensor out_of_batch(const Tensor& signals, const SymInt& examples, const SymInt& batch) {
  return signals.unflatten_symint(0, std::array<SymInt, 2>{examples, batch});
}

// The other arguments of a call.
struct Geometry {
  SymIntArrayRef stride, padding, dilation;

  Tensor convolve(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                  const SymInt& groups, std::string_view activation) const {
    return ops::conv1d_act().call(input, weight, bias, stride, padding, dilation, groups,
                                  activation);
  }
  Gradients backward(const Tensor& grad, const Tensor& input, const Tensor& weight,
                     const SymInt& groups, Mask mask) const {
    return ops::conv1d_backward().call(grad, input, weight, stride, padding, dilation, groups,
                                       mask);
  }
};

// The operands of a call at the innermost level.
struct Operands {
  Operands(const VmapLevel& level, const Tensor& input_, const Tensor& weight_,
           const OptionalTensor& bias_)
      : input(level.unwrap(input_)), weight(level.unwrap(weight_)) {
    if (bias_.has_value() && bias_->defined()) bias = level.unwrap(*bias_);
  }

  // How many examples there are, or none where only another level maps over the operands.
  std::optional<SymInt> examples() const {
    for (const Operand* operand : {&input, &weight, bias.has_value() ? &*bias : nullptr}) {
      if (operand != nullptr && operand->batch_dim.has_value()) {
        return operand->value.sym_size(*operand->batch_dim);
      }
    }
    return std::nullopt;
  }

  OptionalTensor shared_bias() const {
    return bias.has_value() ? OptionalTensor(bias->value) : std::nullopt;
  }

  Operand input, weight;
  std::optional<Operand> bias;
};

Tensor activate(const Tensor& values, std::string_view activation) {
  if (activation == "relu") return at::relu(values);
  if (activation == "silu") return at::silu(values);
  return activation == "gelu" ? at::gelu(values) : values;
}

// One weight for all examples, which go into the batch. A bias that differs between them is added
// to the result. (examples, N, O, L), or without examples where the input has none.
Tensor convolve_batches(const Operands& in, const SymSizes& sizes, const SymInt& examples,
                        const Geometry& geometry, std::string_view activation) {
  const bool own_bias = in.bias.has_value() && in.bias->batch_dim.has_value();
  const Tensor input = with_batch(in_front(in.input, examples), sizes.batched);
  const Tensor result =
      out_of_batch(geometry.convolve(into_batch(input), in.weight.value,
                                     own_bias ? std::nullopt : in.shared_bias(), sizes.groups,
                                     own_bias ? "none" : activation),
                   examples, sizes.batch);
  if (!own_bias || is_known_zero(sizes.out_channels)) return result;
  const Tensor bias = in_front(*in.bias, examples).unsqueeze(1).unsqueeze(3);
  return activate(at::add(result, bias), activation);
}

// Results of no examples, which can't be groups, as no convolution has none.
Tensor of_none(const Operand& like, std::initializer_list<SymInt> sizes) {
  std::vector<SymInt> shape{0};
  shape.insert(shape.end(), sizes.begin(), sizes.end());
  return at::zeros_symint(shape, like.value.options());
}

// A weight for each example: the examples become groups, or where there is one group and they share
// the input, out channels.
Tensor convolve_groups(const Operands& in, const SymSizes& sizes, const SymInt& examples,
                       const Geometry& geometry, std::string_view activation) {
  if (is_known_zero(examples)) {
    return of_none(in.input, {sizes.batch, sizes.out_channels, sizes.out_size});
  }
  const bool shares_input =
      !in.input.batch_dim.has_value() && is_known_equal(sizes.groups, SymInt(1));
  const Tensor input = shares_input
                           ? (sizes.batched ? in.input.value : in.input.value.unsqueeze(0))
                           : into_channels(with_batch(in_front(in.input, examples), sizes.batched));
  OptionalTensor bias;
  if (in.bias.has_value()) bias = in_front(*in.bias, examples).flatten(0, 1);
  const Tensor result =
      geometry.convolve(input, in_front(in.weight, examples).flatten(0, 1), bias,
                        shares_input ? sizes.groups : sizes.groups * examples, activation);
  return out_of_channels(result, examples, sizes.out_channels);
}

Tensor forward_vmap(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                    const SymSizes& sizes, const Geometry& geometry, std::string_view activation) {
  const VmapLevel level;
  const Operands in(level, input, weight, bias);
  const auto examples = in.examples();
  if (!examples.has_value()) {
    return level.wrap(geometry.convolve(in.input.value, in.weight.value, in.shared_bias(),
                                        sizes.groups, activation),
                      std::nullopt);
  }
  const Tensor result = in.weight.batch_dim.has_value()
                            ? convolve_groups(in, sizes, *examples, geometry, activation)
                            : convolve_batches(in, sizes, *examples, geometry, activation);
  return level.wrap(sizes.batched ? result : result.squeeze(1), 0);
}

// vmap comes before autocast, whose casts it makes first, so that all that the rules call are given
// one dtype.
template <typename Call>
Tensor cast_under_autocast(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                           Call call) {
  const auto device = input.device().type();
  if (!is_autocasting(device)) return call(input, weight, bias);
  const Lower lower(device);
  return call(lower(input), lower(weight), lower(bias));
}

Tensor conv1d_vmap(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                   SymIntArrayRef stride, SymIntArrayRef padding, SymIntArrayRef dilation,
                   SymInt groups) {
  return cast_under_autocast(input, weight, bias, [&](const auto& x, const auto& w, const auto& b) {
    const SymSizes sizes = check_forward("gpuopt::conv1d", x, w, b, stride, padding, dilation,
                                         groups, /*two_paddings=*/false);
    return forward_vmap(x, w, b, sizes, {stride, padding, dilation}, "none");
  });
}

Tensor conv1d_act_vmap(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                       SymIntArrayRef stride, SymIntArrayRef padding, SymIntArrayRef dilation,
                       SymInt groups, std::string_view activation) {
  constexpr const char* op = "gpuopt::conv1d_act";
  to_activation(op, activation);
  return cast_under_autocast(input, weight, bias, [&](const auto& x, const auto& w, const auto& b) {
    const SymSizes sizes = check_forward(op, x, w, b, stride, padding, dilation, groups,
                                         /*two_paddings=*/true);
    return forward_vmap(x, w, b, sizes, {stride, padding, dilation}, activation);
  });
}

// The three operands of a backward at the innermost level.
struct BackwardOperands {
  BackwardOperands(const VmapLevel& level, const Tensor& grad_, const Tensor& input_,
                   const Tensor& weight_)
      : grad(level.unwrap(grad_)), input(level.unwrap(input_)), weight(level.unwrap(weight_)) {}

  std::optional<SymInt> examples() const {
    for (const Operand* operand : {&grad, &input, &weight}) {
      if (operand->batch_dim.has_value()) return operand->value.sym_size(*operand->batch_dim);
    }
    return std::nullopt;
  }

  Operand grad, input, weight;
};

// All gradients of all examples, which become groups.
Gradients backward_groups(const BackwardOperands& in, const SymSizes& sizes, const SymInt& examples,
                          const Geometry& geometry, Mask mask) {
  if (is_known_zero(examples)) {
    const Tensor weights = in_front(in.weight, examples);
    const auto weight = weights.sym_sizes();
    Gradients none;
    auto& [grad_input, grad_weight, grad_bias] = none;
    if (mask[0]) {
      grad_input = of_none(in.input, {sizes.batch, sizes.in_channels, sizes.in_size});
    }
    if (mask[1]) grad_weight = of_none(in.weight, {weight[1], weight[2], weight[3]});
    if (mask[2]) grad_bias = of_none(in.weight, {weight[1]});
    return none;
  }
  const auto folded = [&](const Operand& operand) {
    return into_channels(with_batch(in_front(operand, examples), sizes.batched));
  };
  const Tensor weight = in_front(in.weight, examples);
  auto [grad_input, grad_weight, grad_bias] = geometry.backward(
      folded(in.grad), folded(in.input), weight.flatten(0, 1), sizes.groups * examples, mask);
  if (mask[0]) grad_input = out_of_channels(grad_input, examples, sizes.in_channels);
  const std::array<SymInt, 2> channels{examples, weight.sym_size(1)};
  if (mask[1]) grad_weight = grad_weight.unflatten_symint(0, channels);
  if (mask[2]) grad_bias = grad_bias.unflatten_symint(0, channels);
  return {grad_input, grad_weight, grad_bias};
}

// The input's gradient by one weight for all examples, which go into the batch.
Tensor backward_batches(const BackwardOperands& in, const SymSizes& sizes, const SymInt& examples,
                        const Geometry& geometry) {
  const auto folded = [&](const Operand& operand) {
    return into_batch(with_batch(in_front(operand, examples), sizes.batched));
  };
  const Gradients gradients = geometry.backward(folded(in.grad), folded(in.input), in.weight.value,
                                                sizes.groups, {true, false, false});
  return out_of_batch(std::get<0>(gradients), examples, sizes.batch);
}

Gradients conv1d_backward_vmap(const Tensor& grad_output, const Tensor& input, const Tensor& weight,
                               SymIntArrayRef stride, SymIntArrayRef padding,
                               SymIntArrayRef dilation, SymInt groups, Mask mask) {
  const SymSizes sizes =
      check_backward(grad_output, input, weight, stride, padding, dilation, groups);
  const Geometry geometry{stride, padding, dilation};
  const VmapLevel level;
  const BackwardOperands in(level, grad_output, input, weight);
  const auto wrap = [&](const Gradients& gradients, std::optional<int64_t> batch_dim) {
    const auto one = [&](const Tensor& gradient) {
      return gradient.defined() ? level.wrap(gradient, batch_dim) : gradient;
    };
    return Gradients{one(std::get<0>(gradients)), one(std::get<1>(gradients)),
                     one(std::get<2>(gradients))};
  };
  const auto examples = in.examples();
  if (!examples.has_value()) {
    return wrap(geometry.backward(in.grad.value, in.input.value, in.weight.value, groups, mask),
                std::nullopt);
  }
  Gradients gradients;
  const bool by_batches = mask[0] && !in.weight.batch_dim.has_value();
  const Mask by_groups{mask[0] && !by_batches, mask[1], mask[2]};
  if (by_groups[0] || by_groups[1] || by_groups[2]) {
    gradients = backward_groups(in, sizes, *examples, geometry, by_groups);
  }
  Tensor& grad_input = std::get<0>(gradients);
  if (by_batches) grad_input = backward_batches(in, sizes, *examples, geometry);
  if (mask[0] && !sizes.batched) grad_input = grad_input.squeeze(1);
  return wrap(gradients, 0);
}

TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) {
  m.impl("conv1d", conv1d_vmap);
  m.impl("conv1d_act", conv1d_act_vmap);
  m.impl("conv1d_backward", conv1d_backward_vmap);
}

// ---------------------------------------------------------------- autocast

template <c10::DeviceType device>
Tensor conv1d_autocast(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                       SymIntArrayRef stride, SymIntArrayRef padding, SymIntArrayRef dilation,
                       SymInt groups) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const Lower lower(device);
  return ops::conv1d().call(lower(input), lower(weight), lower(bias), stride, padding, dilation,
                            std::move(groups));
}

template <c10::DeviceType device>
Tensor conv1d_act_autocast(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                           SymIntArrayRef stride, SymIntArrayRef padding, SymIntArrayRef dilation,
                           SymInt groups, std::string_view activation) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const Lower lower(device);
  return ops::conv1d_act().call(lower(input), lower(weight), lower(bias), stride, padding, dilation,
                                std::move(groups), activation);
}

TORCH_LIBRARY_IMPL(gpuopt, AutocastCUDA, m) {
  m.impl("conv1d", conv1d_autocast<c10::DeviceType::CUDA>);
  m.impl("conv1d_act", conv1d_act_autocast<c10::DeviceType::CUDA>);
}
TORCH_LIBRARY_IMPL(gpuopt, AutocastCPU, m) {
  m.impl("conv1d", conv1d_autocast<c10::DeviceType::CPU>);
  m.impl("conv1d_act", conv1d_act_autocast<c10::DeviceType::CPU>);
}

}  // namespace
}  // namespace gpuopt::conv1d
