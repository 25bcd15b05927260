// gpuopt::conv1d, conv1d_act, conv_transpose1d and conv1d_backward: schemas, CPU and Meta kernels,
// and the .padding overload, which calls conv1d or conv1d_act.
#include <torch/library.h>

#include "conv1d/binding/aten.h"

namespace gpuopt::conv1d {
namespace {

using Forward = OpList<Conv1d, Conv1dAct, ConvTranspose1d, Conv1dOwn, ConvTranspose1dOwn>;
using Backward = OpList<Conv1dBackward, Conv1dBackwardOwn>;

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  define<Conv1d, Conv1dPadding, Conv1dAct, ConvTranspose1d, Conv1dBackward>(m);
  m.def(Form<Conv1dOwn>::schema().c_str());
  m.def(Form<ConvTranspose1dOwn>::schema().c_str());
  m.def(Form<Conv1dBackwardOwn>::schema().c_str());
}

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

TORCH_LIBRARY_IMPL(gpuopt, CPU, m) {
  Forward::for_each([&]<typename Op>() { impl<Op, forward_cpu>(m); });
  Backward::for_each([&]<typename Op>() { impl<Op, backward_cpu>(m); });
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

TORCH_LIBRARY_IMPL(gpuopt, Meta, m) {
  Forward::for_each([&]<typename Op>() { impl<Op, forward_meta>(m); });
  Backward::for_each([&]<typename Op>() { impl<Op, backward_meta>(m); });
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

TORCH_LIBRARY_IMPL(gpuopt, CompositeImplicitAutograd, m) { impl<Conv1dPadding, conv1d_padding>(m); }

// Without a kernel of its own for vmap, a composite operator would be a loop over the examples.
TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) { impl<Conv1dPadding, conv1d_padding>(m); }

}  // namespace
}  // namespace gpuopt::conv1d
