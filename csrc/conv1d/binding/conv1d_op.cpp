// gpuopt::conv1d, conv1d_act and conv1d_backward: schemas, CPU and Meta kernels, and the .padding
// overload, which is made of the others.
#include <torch/library.h>

#include "conv1d/binding/aten.h"
#include "conv1d/binding/check.h"
#include "conv1d/binding/ops.h"

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
      "conv1d_backward(Tensor grad_output, Tensor input, Tensor weight, SymInt[1] stride, "
      "SymInt[2] padding, SymInt[1] dilation, SymInt groups, bool[3] output_mask) "
      "-> (Tensor, Tensor, Tensor)",
      tags);
}

namespace gpuopt::conv1d {
namespace {

using at::IntArrayRef;
using at::Tensor;
using c10::SymInt;
using c10::SymIntArrayRef;

constexpr const char* kConv1d = "gpuopt::conv1d";
constexpr const char* kAct = "gpuopt::conv1d_act";
constexpr const char* kBackward = "gpuopt::conv1d_backward";

// ---------------------------------------------------------------- CPU: ATen's kernels

Tensor conv1d_cpu(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                  IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, int64_t groups) {
  const Sizes sizes = check_forward(kConv1d, input, weight, bias, stride, padding, dilation, groups,
                                    /*two_paddings=*/false);
  return aten_forward(kConv1d, input, weight, bias, sizes, Activation::kNone);
}

Tensor conv1d_act_cpu(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                      IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, int64_t groups,
                      std::string_view activation) {
  const Sizes sizes = check_forward(kAct, input, weight, bias, stride, padding, dilation, groups,
                                    /*two_paddings=*/true);
  return aten_forward(kAct, input, weight, bias, sizes, to_activation(kAct, activation));
}

Gradients conv1d_backward_cpu(const Tensor& grad_output, const Tensor& input, const Tensor& weight,
                              IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                              int64_t groups, Mask mask) {
  const Sizes sizes = check_backward(grad_output, input, weight, stride, padding, dilation, groups);
  Gradients gradients = aten_backward(kBackward, grad_output, input, weight, sizes, mask);
  if (mask[2]) std::get<2>(gradients) = aten_grad_bias(kBackward, grad_output, weight, sizes);
  return gradients;
}

TORCH_LIBRARY_IMPL(gpuopt, CPU, m) {
  m.impl("conv1d", conv1d_cpu);
  m.impl("conv1d_act", conv1d_act_cpu);
  m.impl("conv1d_backward", conv1d_backward_cpu);
}

// ---------------------------------------------------------------- Meta: shapes, maybe symbolic

Tensor empty(const Tensor& like, const SymSizes& sizes, const SymInt& channels,
             const SymInt& size) {
  const auto strides = result_strides(channels, size, sizes.channels_last);
  const std::array<SymInt, 3> shape{sizes.batch, channels, size};
  const size_t first = sizes.batched ? 0 : 1;
  return at::empty_strided_symint(SymIntArrayRef(shape).slice(first),
                                  SymIntArrayRef(strides).slice(first), like.options());
}

Tensor conv1d_meta(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                   SymIntArrayRef stride, SymIntArrayRef padding, SymIntArrayRef dilation,
                   SymInt groups) {
  const SymSizes sizes = check_forward(kConv1d, input, weight, bias, stride, padding, dilation,
                                       groups, /*two_paddings=*/false);
  return empty(input, sizes, sizes.out_channels, sizes.out_size);
}

Tensor conv1d_act_meta(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                       SymIntArrayRef stride, SymIntArrayRef padding, SymIntArrayRef dilation,
                       SymInt groups, std::string_view activation) {
  const SymSizes sizes = check_forward(kAct, input, weight, bias, stride, padding, dilation, groups,
                                       /*two_paddings=*/true);
  to_activation(kAct, activation);
  return empty(input, sizes, sizes.out_channels, sizes.out_size);
}

Gradients conv1d_backward_meta(const Tensor& grad_output, const Tensor& input, const Tensor& weight,
                               SymIntArrayRef stride, SymIntArrayRef padding,
                               SymIntArrayRef dilation, SymInt groups, Mask mask) {
  const SymSizes sizes =
      check_backward(grad_output, input, weight, stride, padding, dilation, groups);
  Tensor grad_input, grad_weight, grad_bias;
  if (mask[0]) grad_input = empty(input, sizes, sizes.in_channels, sizes.in_size);
  if (mask[1]) grad_weight = at::empty_symint(weight.sym_sizes(), weight.options());
  if (mask[2]) grad_bias = at::empty_symint({weight.sym_size(0)}, weight.options());
  return {grad_input, grad_weight, grad_bias};
}

TORCH_LIBRARY_IMPL(gpuopt, Meta, m) {
  m.impl("conv1d", conv1d_meta);
  m.impl("conv1d_act", conv1d_act_meta);
  m.impl("conv1d_backward", conv1d_backward_meta);
}

// ---------------------------------------------------------------- .padding: 'valid' or 'same'

Tensor conv1d_padding(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                      SymIntArrayRef stride, std::string_view padding, SymIntArrayRef dilation,
                      SymInt groups) {
  TORCH_CHECK(padding == "valid" || padding == "same", kConv1d,
              ": padding must be known: expected ", "'valid', 'same' or a number, got '", padding,
              "'");
  if (padding == "valid") {
    const SymInt none = 0;
    return ops::conv1d().call(input, weight, bias, stride, SymIntArrayRef(&none, 1), dilation,
                              std::move(groups));
  }
  check_dimensions(kConv1d, input, weight);
  check_taps(kConv1d, weight.sym_size(2), weight);
  const SymInt step = check_number(kConv1d, "stride", stride, 1);
  TORCH_CHECK(must_equal(step, 1), kConv1d,
              ": stride must be 1 where padding is 'same': expected 1, got ", step);
  const SymInt total = check_number(kConv1d, "dilation", dilation, 1) * (weight.sym_size(2) - 1);
  const SymInt left = total / 2, right = total - left;
  if (is_known_equal(left, right)) {
    return ops::conv1d().call(input, weight, bias, stride, SymIntArrayRef(&left, 1), dilation,
                              std::move(groups));
  }
  // One more on the right, as ATen, but without a padded copy.
  const std::array<SymInt, 2> ends{left, right};
  check_shapes(kConv1d, input, weight, bias, stride, SymIntArrayRef(ends), dilation, groups,
               /*two_paddings=*/true);
  check_dtypes_before_autocast(kConv1d, input, weight, bias);
  return ops::conv1d_act().call(input, weight, bias, stride, ends, dilation, std::move(groups),
                                "none");
}

TORCH_LIBRARY_IMPL(gpuopt, CompositeImplicitAutograd, m) {
  m.impl("conv1d.padding", conv1d_padding);
}

// vmap alone does not see composites, and would loop over the examples.
TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) { m.impl("conv1d.padding", conv1d_padding); }

}  // namespace
}  // namespace gpuopt::conv1d
