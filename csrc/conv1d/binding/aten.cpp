// See conv1d_aten.h.
#include "conv1d/binding/aten.h"

#include <ATen/ATen.h>

#include "binding/unfilled.h"

namespace gpuopt::conv1d {

using at::Tensor;

namespace {

Tensor empty(const Tensor& like, const Sizes& sizes, int64_t channels, int64_t size) {
  const auto strides = result_strides(channels, size, sizes.channels_last);
  const std::array<int64_t, 3> shape{sizes.batch, channels, size};
  const size_t first = sizes.batched ? 0 : 1;
  return unfilled_strided(at::IntArrayRef(shape).slice(first),
                          at::IntArrayRef(strides).slice(first), like.options());
}

Tensor with_strides(const Tensor& tensor, at::IntArrayRef strides) {
  if (tensor.strides() == strides) return tensor;
  return unfilled_strided(tensor.sizes(), strides, tensor.options()).copy_(tensor);
}

// What ATen computed with a batch, as the operators give it.
Tensor in_layout(const Tensor& result, const Sizes& sizes, int64_t channels, int64_t size) {
  const auto strides = result_strides(channels, size, sizes.channels_last);
  if (sizes.batched) return with_strides(result, strides);
  return with_strides(result.squeeze(0), at::IntArrayRef(strides).slice(1));
}

// Calls ATen, which alone knows the dtypes that it takes. Autocast, which has let the operator
// pass, must not change the dtype here.
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

// With as many values at both ends as ATen pads: what is asymmetric is padded by a copy.
struct Padded {
  Padded(const Tensor& input, const Sizes& sizes)
      : padding(std::min(sizes.left, sizes.right)), left(sizes.left - padding), value(input) {
    const int64_t right = sizes.right - padding;
    if (left > 0 || right > 0) value = at::constant_pad_nd(input, {left, right});
  }

  int64_t padding, left;  // what ATen pads, and what is copied before the first value
  Tensor value;
};

// cuDNN and oneDNN know channels-last images, of which these are rows.
Tensor as_image(const Tensor& signal, const Sizes& sizes) {
  const Tensor image = signal.unsqueeze(2);
  return sizes.channels_last ? image.contiguous(at::MemoryFormat::ChannelsLast) : image;
}

// Contiguous, with the strides that go with it where there is one value, too: ATen's kernels for
// images are not made for others (oneDNN's forward may fault, and gradients be wrong or refused).
Tensor as_image_weight(const Tensor& weight) {
  const auto strides = result_strides(weight.size(1), weight.size(2), /*channels_last=*/false);
  return with_strides(weight, strides).unsqueeze(2);
}

// Of no account where there is one tap, but cuDNN may get it wrong (torch 2.11, (1251,1,31) to 8
// channels, bfloat16, dilation 16).
int64_t dilation_of(const Tensor& weight, const Sizes& sizes) {
  return weight.size(2) == 1 ? 1 : sizes.dilation;
}

void activate(Tensor& result, Activation activation) {
  switch (activation) {
    case Activation::kNone:
      return;
    case Activation::kRelu:
      at::relu_(result);
      return;
    case Activation::kSilu:
      at::silu_(result);
      return;
    case Activation::kGelu:
      at::gelu_(result);
      return;
  }
}

Tensor convolution(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                   const Sizes& sizes) {
  const Padded padded(batched(input, sizes), sizes);
  if (input.is_complex()) {
    return at::conv1d(padded.value, weight, bias, sizes.stride, padded.padding, sizes.dilation,
                      sizes.groups);
  }
  return at::convolution(as_image(padded.value, sizes), as_image_weight(weight), bias,
                         {1, sizes.stride}, {0, padded.padding}, {1, dilation_of(weight, sizes)},
                         /*transposed=*/false, /*output_padding=*/{0, 0}, sizes.groups)
      .squeeze(2);
}

Gradients real_gradients(const Tensor& grad_output, const Tensor& input, const Tensor& weight,
                         const Sizes& sizes, Mask mask) {
  const Padded padded(batched(input, sizes), sizes);
  auto [grad_input, grad_weight, none] = at::convolution_backward(
      as_image(batched(grad_output, sizes), sizes), as_image(padded.value, sizes),
      as_image_weight(weight), /*bias_sizes=*/std::nullopt, {1, sizes.stride}, {0, padded.padding},
      {1, dilation_of(weight, sizes)}, /*transposed=*/false, /*output_padding=*/{0, 0},
      sizes.groups, {mask[0], mask[1], false});
  if (mask[0]) grad_input = grad_input.squeeze(2).narrow(2, padded.left, sizes.in_size);
  if (mask[1]) grad_weight = grad_weight.squeeze(2);
  return {grad_input, grad_weight, none};
}

// Gradients are bilinear, in the output's gradient and the conjugate of the other operand: four
// real ones make a complex one.
Gradients complex_gradients(const Tensor& grad_output, const Tensor& input, const Tensor& weight,
                            const Sizes& sizes, Mask mask) {
  const auto part = [&](const Tensor& grad, const auto& of) {
    return real_gradients(grad, of(input), of(weight), sizes, mask);
  };
  const auto real = [](const Tensor& tensor) { return at::real(tensor); };
  const auto imag = [](const Tensor& tensor) { return at::imag(tensor); };
  const Tensor grad_real = real(grad_output), grad_imag = imag(grad_output);
  const auto rr = part(grad_real, real), ii = part(grad_imag, imag);
  const auto ir = part(grad_imag, real), ri = part(grad_real, imag);
  Gradients result;
  const auto combine = [&](auto index) {
    constexpr size_t k = decltype(index)::value;
    if (!mask[k]) return;
    std::get<k>(result) = at::complex(at::add(std::get<k>(rr), std::get<k>(ii)),
                                      at::sub(std::get<k>(ir), std::get<k>(ri)));
  };
  combine(std::integral_constant<size_t, 0>());
  combine(std::integral_constant<size_t, 1>());
  return result;
}

}  // namespace

Tensor empty_output(const Tensor& input, const Sizes& sizes) {
  return empty(input, sizes, sizes.out_channels, sizes.out_size);
}

Tensor empty_grad_input(const Tensor& input, const Sizes& sizes) {
  return empty(input, sizes, sizes.in_channels, sizes.in_size);
}

Tensor aten_forward(const char* op, const Tensor& input, const Tensor& weight,
                    const OptionalTensor& bias, const Sizes& sizes, Activation activation) {
  if (sizes.batch == 0 || sizes.in_channels == 0) return empty_output(input, sizes);
  return call_aten(op, input, [&] {
    Tensor result = convolution(input, weight, bias, sizes);
    activate(result, activation);
    return in_layout(result, sizes, sizes.out_channels, sizes.out_size);
  });
}

Gradients aten_backward(const char* op, const Tensor& grad_output, const Tensor& input,
                        const Tensor& weight, const Sizes& sizes, Mask mask) {
  Gradients result;
  if (!mask[0] && !mask[1]) return result;
  if (sizes.batch == 0 || sizes.in_channels == 0) {
    if (mask[0]) std::get<0>(result) = empty_grad_input(input, sizes);
    if (mask[1]) std::get<1>(result) = at::zeros(weight.sizes(), weight.options());
    return result;
  }
  return call_aten(op, input, [&] {
    result = input.is_complex() ? complex_gradients(grad_output, input, weight, sizes, mask)
                                : real_gradients(grad_output, input, weight, sizes, mask);
    auto& [grad_input, grad_weight, none] = result;
    if (mask[0]) grad_input = in_layout(grad_input, sizes, sizes.in_channels, sizes.in_size);
    if (mask[1]) {
      const auto strides = result_strides(weight.size(1), weight.size(2), /*channels_last=*/false);
      grad_weight = with_strides(grad_weight, strides);
    }
    return result;
  });
}

Tensor aten_grad_bias(const char* op, const Tensor& grad_output, const Tensor& weight,
                      const Sizes& sizes) {
  if (grad_output.numel() == 0) return at::zeros({weight.size(0)}, weight.options());
  return call_aten(op, grad_output, [&] {
    return at::sum(batched(grad_output, sizes), at::IntArrayRef{0, 2},
                   /*keepdim=*/false, weight.scalar_type());
  });
}

}  // namespace gpuopt::conv1d
