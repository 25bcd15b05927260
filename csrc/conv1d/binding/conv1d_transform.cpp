// The convolutions under torch.vmap and autocast.
#include <array>
#include <initializer_list>
#include <vector>

#include "binding/autocast.h"
#include "binding/vmap.h"
#include "conv1d/binding/aten.h"

namespace gpuopt::conv1d {
namespace {

using Operand = VmapLevel::Operand;

// ---------------------------------------------------------------- vmap

// The operands of a call at vmap's innermost level: input, weight, and the bias or the gradient of
// the output.
struct Operands {
  const SymInt& examples;
  Operand input, weight, other;
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
  return activated(at::add(result, bias), activation);
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
  TensorOption bias;
  if (in.other.value.defined()) bias = in.other.in_front(examples).flatten(0, 1);
  const Tensor result =
      geometry.with_groups(shares_input ? sizes.groups : sizes.groups * examples)
          .convolve(input, in.weight.in_front(examples).flatten(0, 1), bias, activation);
  return out_of_channels(result, examples, sizes.out_channels);
}

Tensor forward_vmap(const ForwardCall& call, const VmapLevel& level, const SymInt& examples) {
  const SymSizes sizes = check_forward(call);
  const Operands in{examples, level.unwrap(call.input), level.unwrap(call.weight),
                    level.unwrap(value_or_undefined(call.bias))};
  const auto& convolve = in.weight.batch_dim.has_value() ? convolve_groups : convolve_batches;
  const Tensor result = convolve(in, sizes, call.geometry, call.activation);
  return level.wrap(sizes.batched ? result : result.squeeze(1), 0);
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

Gradients linear_backward_vmap(const BackwardCall& call, const VmapLevel& level,
                               const SymInt& examples) {
  const auto& [op, grad_output, input, weight, geometry, mask, bias, activation] = call;
  const SymSizes sizes = check_backward(call);
  const Operands in{examples, level.unwrap(input), level.unwrap(weight), level.unwrap(grad_output)};
  Gradients gradients;
  auto& [grad_input, grad_weight, grad_bias] = gradients;
  const bool by_batches = mask[0] && !in.weight.batch_dim.has_value();
  const Mask by_groups{mask[0] && !by_batches, mask[1], mask[2]};
  if (by_groups != Mask{}) gradients = backward_groups(in, sizes, geometry, by_groups);
  if (by_batches) grad_input = backward_batches(in, sizes, geometry);
  if (mask[0] && !sizes.batched) grad_input = grad_input.squeeze(1);
  for (Tensor* gradient : {&grad_input, &grad_weight, &grad_bias}) {
    if (gradient->defined()) *gradient = level.wrap(*gradient, 0);
  }
  return gradients;
}

Gradients backward_vmap(const Conv1dBackward& op) {
  const BackwardCall call = op;
  if (call.activation == Activation::kNone) {
    return detail::batched<Conv1dBackward, linear_backward_vmap>(op);
  }
  check_backward(call);
  return backward_in_steps(call);
}

// As in ATen, convolutions are computed in the lower precision under autocast, and their backward
// has no policy.
TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  OpList<Conv1d, Conv1dAct, ConvTranspose1d>::for_each([&]<typename Op>() {
    impl<Op, VmapAfterCast<forward_vmap, lower_precision, at::kCUDA, at::kCPU>>(m);
  });
  impl<Conv1dBackward, Batched<backward_vmap>>(m);
}

}  // namespace
}  // namespace gpuopt::conv1d
