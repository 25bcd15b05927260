// See aten.h.
#include "conv1d/binding/aten.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include "binding/grad_node.h"
#include "binding/unfilled.h"

namespace gpuopt::conv1d {
namespace {

Tensor with_strides(const Tensor& tensor, at::IntArrayRef strides) {
  if (tensor.strides() == strides) return tensor;
  return unfilled_strided(tensor.sizes(), strides, tensor.options()).copy_(tensor);
}

// Gives a result of ATen, which has a batch, the dimensions and the layout of the operators'
// results.
Tensor in_layout(const Tensor& result, const Sizes& sizes, int64_t channels, int64_t size) {
  const auto strides = result_strides(channels, size, sizes.channels_last);
  if (sizes.batched) return with_strides(result, strides);
  return with_strides(result.squeeze(0), at::IntArrayRef(strides).slice(1));
}

// Calls ATen. Its errors about dtypes become NotImplementedError with the operator's name, because
// only ATen knows which dtypes it supports. Autocast has already handled the operator and must not
// change the dtype here.
template <typename Call>
auto call_aten(const char* op, const Tensor& input, Call call) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const auto refusal = [&](const c10::Error& error) {
    return c10::str(op, ": input's dtype is not implemented on ",
                    input.is_cuda() ? "CUDA" : "the CPU", ": expected another one, got ",
                    input.scalar_type(), " (", error.what_without_backtrace(), ")");
  };
  try {
    return call();
  } catch (const c10::NotImplementedError& error) {
    TORCH_CHECK_NOT_IMPLEMENTED(false, refusal(error));
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error& error) {
    TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(input.scalar_type()), refusal(error));
    throw;
  }
}

Tensor batched(const Tensor& signal, const Sizes& sizes) {
  return sizes.batched ? signal : signal.unsqueeze(0);
}

// ATen pads both ends by the same number. The rest of an asymmetric padding is made in a copy.
struct Padded {
  Padded(const Tensor& input, const Sizes& sizes)
      : padding(std::min(sizes.left, sizes.right)), left(sizes.left - padding), value(input) {
    const int64_t right = sizes.right - padding;
    if (left > 0 || right > 0) value = at::constant_pad_nd(input, {left, right});
  }

  int64_t padding, left;  // zeros at each end by ATen, and zeros on the left by the copy
  Tensor value;
};

// On the CPU, ATen gets what F.conv1d and its derivative pass on. With channels-last images oneDNN
// may compute wrong gradients or never return (torch 2.11, bfloat16, a CPU with AVX512-BF16). With
// float16, even F.conv1d may never return (torch 2.11, a depthwise channels-last signal (2,12,60)
// with 16 taps, a CPU with AVX-512). So float16 is computed in float32 there.
at::ScalarType computed_dtype(const Tensor& input) {
  const at::ScalarType dtype = input.scalar_type();
  return input.is_cpu() && at::toRealValueType(dtype) == at::kHalf ? at::toOpMathType(dtype)
                                                                   : dtype;
}

// A signal as an image of one row, because cuDNN supports channels last only for images.
Tensor as_image(const Tensor& signal, const Sizes& sizes) {
  const Tensor image = signal.unsqueeze(2);
  return sizes.channels_last ? image.contiguous(at::MemoryFormat::ChannelsLast) : image;
}

// A contiguous weight, whose dimensions of size 1 have contiguous strides too. ATen's kernels for
// images support no other strides: gradients may be wrong or refused.
Tensor contiguous(const Tensor& weight) {
  return with_strides(weight, result_strides(weight.size(1), weight.size(2), false));
}

void activate(Tensor& result, Activation activation) {
  if (activation == Activation::kRelu) at::relu_(result);
  if (activation == Activation::kSilu) at::silu_(result);
  if (activation == Activation::kGelu) at::gelu_(result);
}

Tensor convolution(const ForwardCall& call, const Sizes& sizes) {
  const Padded padded(batched(call.input, sizes), sizes);
  if (call.input.is_complex() || call.input.is_cpu()) {
    const at::ScalarType computed = computed_dtype(call.input);
    TensorOption bias;
    if (is_given(call.bias)) bias = call.bias->to(computed);
    const Tensor input = padded.value.to(computed), weight = call.weight.to(computed);
    return sizes.transposed
               ? at::conv_transpose1d(input, weight, bias, sizes.stride, padded.padding,
                                      sizes.output_padding, sizes.groups, sizes.dilation)
               : at::conv1d(input, weight, bias, sizes.stride, padded.padding, sizes.dilation,
                            sizes.groups);
  }
  return at::convolution(as_image(padded.value, sizes), contiguous(call.weight).unsqueeze(2),
                         call.bias, {1, sizes.stride}, {0, padded.padding}, {1, sizes.dilation},
                         sizes.transposed, {0, sizes.output_padding}, sizes.groups)
      .squeeze(2);
}

Gradients real_gradients(const Tensor& grad_output, const Tensor& input, const Tensor& weight,
                         const Sizes& sizes, Mask mask) {
  const Padded padded(batched(input, sizes), sizes);
  const Tensor grad = batched(grad_output, sizes);
  Gradients gradients;
  auto& [grad_input, grad_weight, none] = gradients;
  if (input.is_cpu()) {
    const at::ScalarType computed = computed_dtype(input);
    gradients = at::convolution_backward(
        grad.to(computed), padded.value.to(computed), weight.to(computed),
        /*bias_sizes=*/std::nullopt, sizes.stride, padded.padding, sizes.dilation,
        /*transposed=*/false, /*output_padding=*/0, sizes.groups, {mask[0], mask[1], false});
    if (mask[0]) grad_input = grad_input.to(input.scalar_type());
    if (mask[1]) grad_weight = grad_weight.to(input.scalar_type());
  } else {
    gradients = at::convolution_backward(
        as_image(grad, sizes), as_image(padded.value, sizes), contiguous(weight).unsqueeze(2),
        /*bias_sizes=*/std::nullopt, {1, sizes.stride}, {0, padded.padding}, {1, sizes.dilation},
        /*transposed=*/false, /*output_padding=*/{0, 0}, sizes.groups, {mask[0], mask[1], false});
    if (mask[0]) grad_input = grad_input.squeeze(2);
    if (mask[1]) grad_weight = grad_weight.squeeze(2);
  }
  if (mask[0]) grad_input = grad_input.narrow(2, padded.left, sizes.in_size);
  return gradients;
}

// A gradient is bilinear in the output's gradient and the conjugate of the other operand, so four
// real gradients make a complex one.
Gradients complex_gradients(const BackwardCall& call, const Sizes& sizes, Mask mask) {
  const auto part = [&](const auto& of_grad, const auto& of) {
    return real_gradients(of_grad(call.grad_output), of(call.input), of(call.weight), sizes, mask);
  };
  const auto real = [](const Tensor& tensor) { return at::real(tensor); };
  const auto imag = [](const Tensor& tensor) { return at::imag(tensor); };
  const auto rr = part(real, real), ii = part(imag, imag);
  const auto ir = part(imag, real), ri = part(real, imag);
  const auto combine = [&]<size_t k>() {
    if (!mask[k]) return Tensor();
    return at::complex(at::add(std::get<k>(rr), std::get<k>(ii)),
                       at::sub(std::get<k>(ir), std::get<k>(ri)));
  };
  return { combine.template operator()<0>(), combine.template operator()<1>(), Tensor() };
}

}  // namespace

Tensor empty_result(Pass pass, const Tensor& input, const Tensor& weight, const Sizes& sizes) {
  if (pass == Pass::kWeightGradient) return unfilled(weight.sizes(), weight.options());
  const bool forward = pass == Pass::kForward;
  const std::array<int64_t, 3> shape{sizes.batch, forward ? sizes.out_channels : sizes.in_channels,
                                     forward ? sizes.out_size : sizes.in_size};
  const auto strides = result_strides(shape[1], shape[2], sizes.channels_last);
  const size_t first = sizes.batched ? 0 : 1;
  return unfilled_strided(at::IntArrayRef(shape).slice(first),
                          at::IntArrayRef(strides).slice(first), input.options());
}

Tensor aten_forward(const ForwardCall& call, const Sizes& sizes) {
  // ATen refuses a transposed convolution without output channels on the CPU.
  if (sizes.batch == 0 || sizes.in_channels == 0 || sizes.out_channels == 0) {
    return empty_result(Pass::kForward, call.input, call.weight, sizes);
  }
  return call_aten(call.op, call.input, [&] {
    Tensor result = convolution(call, sizes);
    const at::ScalarType dtype = call.input.scalar_type();
    if (at::isComplexType(dtype)) result = result.to(dtype);  // ATen activates no complex32
    activate(result, call.activation);
    result = result.to(dtype);  // from what is computed in on the CPU
    return in_layout(result, sizes, sizes.out_channels, sizes.out_size);
  });
}

Gradients aten_backward(const BackwardCall& call, const Sizes& sizes, Mask mask) {
  const Tensor &input = call.input, &weight = call.weight;
  Gradients result;
  auto& [grad_input, grad_weight, none] = result;
  if (!mask[0] && !mask[1]) return result;
  if (sizes.batch == 0 || sizes.in_channels == 0) {
    if (mask[0]) grad_input = empty_result(Pass::kInputGradient, input, weight, sizes);
    if (mask[1]) grad_weight = at::zeros(weight.sizes(), weight.options());
    return result;
  }
  return call_aten(call.op, input, [&] {
    result = input.is_complex() ? complex_gradients(call, sizes, mask)
                                : real_gradients(call.grad_output, input, weight, sizes, mask);
    if (mask[0]) grad_input = in_layout(grad_input, sizes, sizes.in_channels, sizes.in_size);
    if (mask[1]) grad_weight = contiguous(grad_weight);
    return result;
  });
}

Tensor aten_grad_bias(const BackwardCall& call, const Sizes& sizes) {
  const Tensor &grad = call.grad_output, &weight = call.weight;
  if (grad.numel() == 0) return at::zeros({weight.size(0)}, weight.options());
  return call_aten(call.op, grad, [&] {
    return at::sum(batched(grad, sizes), at::IntArrayRef{0, 2}, /*keepdim=*/false,
                   weight.scalar_type());
  });
}

Gradients backward_in_steps(const BackwardCall& call) {
  const auto& [op, grad, input, weight, geometry, mask, bias, activation] = call;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const Tensor from = geometry.convolve(input, weight, bias);
  return geometry.backward(activation_backward(grad, from, activation), input, weight, mask);
}

}  // namespace gpuopt::conv1d
