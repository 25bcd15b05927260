// gpuopt::conv1d, conv1d_act, conv_transpose1d and conv1d_backward: schemas, CPU and Meta kernels,
// and the .padding overload, which calls conv1d or conv1d_act.
#include <torch/library.h>

#include "conv1d/binding/aten.h"

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  const std::vector<at::Tag> tags{at::Tag::pt2_compliant_tag};
  m.def(
      "conv1d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=1, "
      "SymInt[1] padding=0, SymInt[1] dilation=1, SymInt groups=1) -> Tensor",
      tags);
  m.def(
      "conv1d.padding(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=1, "
      "str padding=\"valid\", SymInt[1] dilation=1, SymInt groups=1) -> Tensor",
      tags);
  m.def(
      "conv1d_act(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=1, "
      "SymInt[2] padding=0, SymInt[1] dilation=1, SymInt groups=1, str activation=\"none\") "
      "-> Tensor",
      tags);
  m.def(
      "conv_transpose1d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=1, "
      "SymInt[1] padding=0, SymInt[1] output_padding=0, SymInt groups=1, SymInt[1] dilation=1) "
      "-> Tensor",
      tags);
  m.def(
      "conv1d_backward(Tensor grad_output, Tensor input, Tensor weight, SymInt[1] stride, "
      "SymInt[2] padding, SymInt[1] dilation, SymInt groups, bool[3] output_mask, "
      "Tensor? bias=None, str activation=\"none\") -> (Tensor, Tensor, Tensor)",
      tags);
  // The results that a path of this library computes. The others, which ATen would compute, are
  // undefined. On the CPU, ATen computes all of them, and Meta has all of them.
  m.def(
      "_conv1d_own(Tensor input, Tensor weight, Tensor? bias, SymInt[1] stride, "
      "SymInt[1] padding, SymInt[1] dilation, SymInt groups) -> Tensor");
  m.def(
      "_conv_transpose1d_own(Tensor input, Tensor weight, Tensor? bias, SymInt[1] stride, "
      "SymInt[1] padding, SymInt[1] output_padding, SymInt groups, SymInt[1] dilation) -> Tensor");
  m.def(
      "_conv1d_backward_own(Tensor grad_output, Tensor input, Tensor weight, SymInt[1] stride, "
      "SymInt[1] padding, SymInt[1] dilation, SymInt groups, bool[3] output_mask, "
      "Tensor? bias=None, str activation=\"none\") -> (Tensor, Tensor, Tensor)");
}

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

TORCH_LIBRARY_IMPL(gpuopt, CPU, m) {
  register_kernels<forward_cpu, backward_cpu>(m);
  register_own<forward_cpu, backward_cpu>(m);
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
  register_kernels<forward_meta, backward_meta>(m);
  register_own<forward_meta, backward_meta>(m);
}

// ---------------------------------------------------------------- .padding: 'valid' or 'same'

Tensor conv1d_padding(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                      SymIntArrayRef stride, std::string_view padding, SymIntArrayRef dilation,
                      SymInt groups) {
  constexpr const char* op = "gpuopt::conv1d";
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
    return ops::conv1d().call(input, weight, bias, stride, SymIntArrayRef(&left, 1), dilation,
                              std::move(groups));
  }
  // ATen pads one more value on the right as well, but in a copy of the input.
  const std::array<SymInt, 2> ends{left, right};
  const Geometry geometry{stride, ends, dilation, std::move(groups)};
  check_shapes({op, /*two_paddings=*/true, input, weight, bias, geometry});
  check_dtypes_before_autocast(op, input, weight, bias);
  return geometry.convolve(input, weight, bias);
}

TORCH_LIBRARY_IMPL(gpuopt, CompositeImplicitAutograd, m) {
  m.impl("conv1d.padding", conv1d_padding);
}

// Without a kernel of its own for vmap, a composite operator would be a loop over the examples.
TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) { m.impl("conv1d.padding", conv1d_padding); }

}  // namespace
}  // namespace gpuopt::conv1d
