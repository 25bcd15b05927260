// The convolutions under torch.vmap and autocast.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <array>
#include <initializer_list>
#include <vector>

#include "binding/vmap.h"
#include "conv1d/binding/aten.h"

namespace gpuopt::conv1d {
namespace {

using Operand = VmapLevel::Operand;

// ATen's policy under autocast: convolutions are computed in the lower precision, and their
// backward has no policy.
Tensor call_lowered(const ForwardCall& call, c10::DeviceType device, const auto& invoke) {
  const auto dtype = at::autocast::get_lower_precision_fp_from_device_type(device);
  const auto lower = [&](const auto& tensor) {
    return at::autocast::cached_cast(dtype, tensor, device);
  };
  return invoke(lower(call.input), lower(call.weight), lower(call.bias));
}

// ---------------------------------------------------------------- vmap

// The operands of a call at vmap's innermost level: input, weight, and the bias or the gradient of
// the output.
struct Operands {
  Operands(const Tensor& input_, const Tensor& weight_, const Tensor& other_)
      : input(level.unwrap(input_)), weight(level.unwrap(weight_)), other(level.unwrap(other_)) {
    for (const Operand* operand : {&other, &input, &weight}) {
      if (!operand->batch_dim.has_value()) continue;
      examples = operand->value.sym_size(*operand->batch_dim);
      is_batched = true;
      return;
    }
  }

  VmapLevel level;
  Operand input, weight, other;
  bool is_batched = false;  // false if only another level maps over the operands
  SymInt examples;
};

// (examples, N, ...) from (N, ...), or from (...) if the caller has no batch.
Tensor with_batch(const Operand& signal, const Operands& in, const SymSizes& sizes) {
  const Tensor front = signal.in_front(in.examples);
  return sizes.batched ? front : front.unsqueeze(1);
}

// (examples, N, C, L) with the examples among the channels, (N, examples * C, L), and back.
Tensor into_channels(const Tensor& signals) { return signals.transpose(0, 1).flatten(1, 2); }
Tensor out_of_channels(const Tensor& signals, const SymInt& examples, const SymInt& channels) {
  return signals.unflatten_symint(1, std::array<SymInt, 2>{examples, channels}).transpose(0, 1);
}

// (examples, N, ...) from (examples * N, ...).
Tensor out_of_batch(const Tensor& signals, const Operands& in, const SymSizes& sizes) {
  return signals.unflatten_symint(0, std::array<SymInt, 2>{in.examples, sizes.batch});
}

// Results of no examples. They cannot become groups, because a convolution has at least one group.
Tensor of_none(const Operand& like, std::initializer_list<SymInt> sizes) {
  std::vector<SymInt> shape{0};
  shape.insert(shape.end(), sizes.begin(), sizes.end());
  return at::zeros_symint(shape, like.value.options());
}

Tensor activate(const Tensor& values, Activation activation) {
  if (activation == Activation::kRelu) return at::relu(values);
  if (activation == Activation::kSilu) return at::silu(values);
  return activation == Activation::kGelu ? at::gelu(values) : values;
}

// One weight for all examples, which go into the batch. A bias that differs between them is added
// to the result.
Tensor convolve_batches(const Operands& in, const SymSizes& sizes, const Geometry& geometry,
                        Activation activation) {
  const Tensor input = with_batch(in.input, in, sizes).flatten(0, 1);
  if (!in.other.batch_dim.has_value()) {
    const auto bias = if_defined(in.other.value);
    return out_of_batch(geometry.convolve(input, in.weight.value, bias, activation), in, sizes);
  }
  const Tensor result =
      out_of_batch(geometry.convolve(input, in.weight.value, std::nullopt), in, sizes);
  if (is_known_zero(sizes.out_channels)) return result;
  const Tensor bias = in.other.in_front(in.examples).unsqueeze(1).unsqueeze(3);
  return activate(at::add(result, bias), activation);
}

// A weight for each example: the examples become groups. If there is one group and the examples
// share the input, they become output channels instead.
Tensor convolve_groups(const Operands& in, const SymSizes& sizes, const Geometry& geometry,
                       Activation activation) {
  const SymInt& examples = in.examples;
  if (is_known_zero(examples)) {
    return of_none(in.input, {sizes.batch, sizes.out_channels, sizes.out_size});
  }
  const bool shares_input = !in.input.batch_dim.has_value() &&
                            is_known_equal(sizes.groups, SymInt(1)) && !geometry.transposed;
  const Tensor input = !shares_input   ? into_channels(with_batch(in.input, in, sizes))
                       : sizes.batched ? in.input.value
                                       : in.input.value.unsqueeze(0);
  OptionalTensor bias;
  if (in.other.value.defined()) bias = in.other.in_front(examples).flatten(0, 1);
  const Tensor result =
      geometry.with_groups(shares_input ? sizes.groups : sizes.groups * examples)
          .convolve(input, in.weight.in_front(examples).flatten(0, 1), bias, activation);
  return out_of_channels(result, examples, sizes.out_channels);
}

// vmap's key comes before autocast's. Autocast's casts are made here, so that the rules call
// operators with operands of one dtype.
Tensor forward_vmap(const ForwardCall& call) {
  const auto rule = [&](const Tensor& input, const Tensor& weight, const OptionalTensor& bias) {
    const auto& [op, two_paddings, x, w, b, geometry, activation, keys] = call;
    const SymSizes sizes =
        check_forward({op, two_paddings, input, weight, bias, geometry, activation});
    const Operands in(input, weight, value_or_undefined(bias));
    if (!in.is_batched) {
      return in.level.wrap(geometry.convolve(in.input.value, in.weight.value,
                                             if_defined(in.other.value), activation),
                           std::nullopt);
    }
    const Tensor result = in.weight.batch_dim.has_value()
                              ? convolve_groups(in, sizes, geometry, activation)
                              : convolve_batches(in, sizes, geometry, activation);
    return in.level.wrap(sizes.batched ? result : result.squeeze(1), 0);
  };
  const auto device = call.input.device().type();
  if (is_autocasting(device)) return call_lowered(call, device, rule);
  return rule(call.input, call.weight, call.bias);
}

// All gradients of all examples, which become groups.
Gradients backward_groups(const Operands& in, const SymSizes& sizes, const Geometry& geometry,
                          Mask mask) {
  const SymInt& examples = in.examples;
  const Tensor weights = in.weight.in_front(examples);
  const auto weight = weights.sym_sizes();
  Gradients gradients;
  auto& [grad_input, grad_weight, grad_bias] = gradients;
  if (is_known_zero(examples)) {
    if (mask[0]) {
      grad_input = of_none(in.input, {sizes.batch, sizes.in_channels, sizes.in_size});
    }
    if (mask[1]) grad_weight = of_none(in.weight, {weight[1], weight[2], weight[3]});
    if (mask[2]) grad_bias = of_none(in.weight, {weight[1]});
    return gradients;
  }
  gradients =
      geometry.with_groups(sizes.groups * examples)
          .backward(into_channels(with_batch(in.other, in, sizes)),
                    into_channels(with_batch(in.input, in, sizes)), weights.flatten(0, 1), mask);
  if (mask[0]) grad_input = out_of_channels(grad_input, examples, sizes.in_channels);
  const std::array<SymInt, 2> channels{examples, weight[1]};
  if (mask[1]) grad_weight = grad_weight.unflatten_symint(0, channels);
  if (mask[2]) grad_bias = grad_bias.unflatten_symint(0, channels);
  return gradients;
}

// The input's gradient by one weight for all examples, which go into the batch.
Tensor backward_batches(const Operands& in, const SymSizes& sizes, const Geometry& geometry) {
  const Gradients gradients = geometry.backward(with_batch(in.other, in, sizes).flatten(0, 1),
                                                with_batch(in.input, in, sizes).flatten(0, 1),
                                                in.weight.value, {true, false, false});
  return out_of_batch(std::get<0>(gradients), in, sizes);
}

Gradients backward_vmap(const BackwardCall& call) {
  const auto& [grad_output, input, weight, geometry, mask, bias, activation, keys] = call;
  const SymSizes sizes = check_backward(call);
  if (activation != Activation::kNone) return backward_in_steps(call);
  const Operands in(input, weight, grad_output);
  Gradients gradients;
  auto& [grad_input, grad_weight, grad_bias] = gradients;
  if (!in.is_batched) {
    gradients = geometry.backward(in.other.value, in.input.value, in.weight.value, mask);
  } else {
    const bool by_batches = mask[0] && !in.weight.batch_dim.has_value();
    const Mask by_groups{mask[0] && !by_batches, mask[1], mask[2]};
    if (by_groups != Mask{}) gradients = backward_groups(in, sizes, geometry, by_groups);
    if (by_batches) grad_input = backward_batches(in, sizes, geometry);
    if (mask[0] && !sizes.batched) grad_input = grad_input.squeeze(1);
  }
  const auto batch_dim = in.is_batched ? std::optional<int64_t>(0) : std::nullopt;
  for (Tensor* gradient : {&grad_input, &grad_weight, &grad_bias}) {
    if (gradient->defined()) *gradient = in.level.wrap(*gradient, batch_dim);
  }
  return gradients;
}

TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) {
  register_kernels<forward_vmap, backward_vmap>(m);
}

// ---------------------------------------------------------------- autocast

template <c10::DeviceType device>
Tensor forward_autocast(const ForwardCall& call) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const auto invoke = [](const auto& op, const auto&... arguments) {
    return op.call(arguments...);
  };
  return call_lowered(call, device,
                      [&](const auto&... operands) { return call.again(invoke, operands...); });
}

TORCH_LIBRARY_IMPL(gpuopt, AutocastCUDA, m) {
  register_forward<forward_autocast<c10::DeviceType::CUDA>>(m);
}
TORCH_LIBRARY_IMPL(gpuopt, AutocastCPU, m) {
  register_forward<forward_autocast<c10::DeviceType::CPU>>(m);
}

}  // namespace
}  // namespace gpuopt::conv1d
