// gpuopt::conv1d, conv1d_act, conv_transpose1d and conv1d_backward: schemas, CPU and Meta kernels,
// and the .padding overload, which calls conv1d or conv1d_act.
#include <torch/library.h>

#include "conv1d/binding/aten.h"

namespace gpuopt::conv1d {
namespace {

// ---------------------------------------------------------------- CPU: ATen's kernels

Tensor forward_cpu(const ForwardCall& call) {
  return aten_forward(call, concrete(check_forward(call)));
}

Gradients backward_cpu(const BackwardCall& call) {
  const Sizes sizes = concrete(check_backward(call));
  if (call.activation != Activation::kNone) return backward_in_steps(call);
  Gradients gradients = aten_backward(call, sizes, call.mask);
  if (call.mask[2]) std::get<2>(gradients) = aten_grad_bias(call, sizes);
  return gradients;
}

// ---------------------------------------------------------------- Meta: shapes, may be symbolic

Tensor empty(const Tensor& like, const SymSizes& sizes, const SymInt& channels,
             const SymInt& size) {
  const auto strides = result_strides(channels, size, sizes.channels_last);
  const std::array<SymInt, 3> shape{sizes.batch, channels, size};
  const size_t first = sizes.batched ? 0 : 1;
  return at::empty_strided_symint(SymIntArrayRef(shape).slice(first),
                                  SymIntArrayRef(strides).slice(first), like.options());
}

Tensor forward_meta(const ForwardCall& call) {
  const SymSizes sizes = check_forward(call);
  return empty(call.input, sizes, sizes.out_channels, sizes.out_size);
}

Gradients backward_meta(const BackwardCall& call) {
  const SymSizes sizes = check_backward(call);
  const Tensor& weight = call.weight;
  Tensor grad_input, grad_weight, grad_bias;
  if (call.mask[0]) grad_input = empty(call.input, sizes, sizes.in_channels, sizes.in_size);
  if (call.mask[1]) grad_weight = at::empty_symint(weight.sym_sizes(), weight.options());
  if (call.mask[2]) grad_bias = at::empty_symint({weight.sym_size(0)}, weight.options());
  return {grad_input, grad_weight, grad_bias};
}

// ---------------------------------------------------------------- .padding: 'valid' or 'same'

Tensor conv1d_padding(const Conv1dPadding& given) {
  const auto& [input, weight, bias, stride, padding, dilation, groups] = given;
  const char* op = name_of<Conv1d>();
  TORCH_CHECK(padding == "valid" || padding == "same", op, ": padding must be known: expected ",
              "'valid', 'same' or a number, got '", padding, "'");
  SymInt left = 0, right = 0;
  if (padding == "same") {
    check_dimensions(op, input, weight);
    check_taps(op, weight);
    const SymInt number = check_number(op, "stride", stride, 1);
    TORCH_CHECK(must_equal(number, 1), op,
                ": stride must be 1 where padding is 'same': expected 1, got ", number);
    const SymInt total =
        check_span(op, check_number(op, "dilation", dilation, 1), weight.sym_size(2));
    left = total / 2;
    right = total - left;
  }
  if (is_known_equal(left, right)) {
    return call(Conv1d{input, weight, bias, stride, {&left, 1}, dilation, groups});
  }
  // ATen pads one more value on the right as well, but in a copy of the input.
  const std::array<SymInt, 2> ends{left, right};
  const Geometry geometry{stride, ends, dilation, groups};
  check_shapes({op, /*two_paddings=*/true, input, weight, bias, geometry});
  check_dtypes_before_autocast(op, input, weight, bias);
  return geometry.convolve(input, weight, bias);
}

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  OpList<Conv1d, Conv1dAct, ConvTranspose1d>::for_each(
      [&]<typename Op>() { register_op<Op, Cpu<forward_cpu>, Meta<forward_meta>>(m); });
  register_op<Conv1dBackward, Cpu<backward_cpu>, Meta<backward_meta>>(m);
  register_op<Conv1dPadding, Composite<conv1d_padding>>(m);
  register_private_op<Conv1dByPath, Cpu<forward_cpu>, Meta<forward_meta>>(m);
  register_private_op<ConvTranspose1dByPath, Cpu<forward_cpu>, Meta<forward_meta>>(m);
  register_private_op<Conv1dBackwardByPath, Cpu<backward_cpu>, Meta<backward_meta>>(m);
}

}  // namespace
}  // namespace gpuopt::conv1d
