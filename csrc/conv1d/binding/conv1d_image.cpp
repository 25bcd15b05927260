// gpuopt::_conv1d_image: a convolution of a channels-last signal by ATen, as an image of one row.
//
// PyTorch makes signals contiguous before it convolves them. It leaves images alone, and cuDNN's
// fast kernels read channels-last images. This is one call from Python, it plans nothing, and its
// gradient is one node. Transforms, tangents, autocast and tracing see ATen's operators.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <array>

#include "binding/grad_node.h"
#include "conv1d/binding/call.h"
#include "transpose/binding/transpose_ops.h"

namespace gpuopt::conv1d {
namespace {

struct Conv1dImage {
  using Result = Tensor;
  static constexpr std::string_view kSchema =
      "_conv1d_image(Tensor signal, Tensor weight, Tensor? bias, int stride, int padding, "
      "int dilation, int output_padding, int groups, bool transposed) -> Tensor";
  const Tensor &signal, &weight;
  const TensorOption& bias;
  int64_t stride, padding, dilation, output_padding, groups;
  bool transposed;
};

// How the taps of a convolution lie on an image of one row.
struct ImageGeometry {
  std::array<int64_t, 2> stride, padding, dilation, output_padding;
  int64_t groups;
  bool transposed;
};

ImageGeometry geometry_of(const Conv1dImage& op) {
  return {{1, op.stride},         {0, op.padding}, {1, op.dilation},
          {0, op.output_padding}, op.groups,       op.transposed};
}

// A signal (N, C, L) that is (N, L, C) in memory. This library's copy is several times as fast as
// ATen's.
Tensor to_channels_last(const Tensor& signal) {
  return signal.mT().is_contiguous() ? signal : call(Transpose2D{signal}).mT();
}

// ATen's kernels for images support (O, I, K) and (O, K, I) in memory. With other strides gradients
// may be wrong or refused.
Tensor as_image_of_weight(const Tensor& weight) {
  const bool is_supported = weight.is_contiguous() || weight.mT().is_contiguous();
  return (is_supported ? weight : weight.contiguous()).unsqueeze(2);
}

bool is_last(const Tensor& image) { return image.is_contiguous(at::MemoryFormat::ChannelsLast); }

// Some of ATen's kernels return contiguous images.
Tensor signal_of(const Tensor& image) { return to_channels_last(image.squeeze(2)); }

// The convolution of a channels-last image below autograd.
Tensor convolve_image(const Tensor& image, const Tensor& weight, const TensorOption& bias,
                      const ImageGeometry& geometry) {
  const auto& [stride, padding, dilation, output_padding, groups, transposed] = geometry;
  const Tensor result = at::convolution(image, as_image_of_weight(weight), bias, stride, padding,
                                        dilation, transposed, output_padding, groups);
  return signal_of(result);
}

// The same by operators that autocast, transforms and compilers know.
Tensor convolve_composite(const Tensor& signal, const Tensor& weight, const TensorOption& bias,
                          const ImageGeometry& geometry) {
  const auto& [stride, padding, dilation, output_padding, groups, transposed] = geometry;
  const Tensor image = to_channels_last(signal).unsqueeze(2), taps = as_image_of_weight(weight);
  const Tensor result = transposed
                            ? at::conv_transpose2d(image, taps, bias, stride, padding,
                                                   output_padding, groups, dilation)
                            : at::conv2d(image, taps, bias, stride, padding, dilation, groups);
  return signal_of(result);
}

struct Conv1dImageBackward : GradNode {
  Conv1dImageBackward(const Tensor& signal, const Tensor& weight, const TensorOption& bias,
                      const ImageGeometry& geometry)
      : GradNode(signal, weight, bias),
        signal_(this, signal),
        weight_(this, weight),
        geometry_(geometry) {}
  std::string name() const override { return "GpuoptConv1DImageBackward"; }
  void describe_state(NodeState& state) const override {
    const auto& [stride, padding, dilation, output_padding, groups, transposed] = geometry_;
    state(stride, padding, dilation, output_padding, groups, transposed);
  }

  torch::autograd::variable_list gradients(const Tensor& grad) override {
    const auto& [stride, padding, dilation, output_padding, groups, transposed] = geometry_;
    const Mask mask{task_should_compute_output(0), task_should_compute_output(1),
                    task_should_compute_output(2)};
    const std::array<int64_t, 1> bias_sizes{grad.size(1)};
    auto [of_signal, of_weight, of_bias] = at::convolution_backward(
        to_channels_last(grad).unsqueeze(2), signal_.unpack().unsqueeze(2),
        as_image_of_weight(weight_.unpack()), at::IntArrayRef(bias_sizes), stride, padding,
        dilation, transposed, output_padding, groups, mask);
    if (mask[0]) of_signal = signal_of(of_signal);
    if (mask[1]) of_weight = of_weight.squeeze(2);
    return {of_signal, of_weight, of_bias};
  }

 private:
  Saved signal_, weight_;
  ImageGeometry geometry_;
};

// On the CPU, half types are computed in float32, unless autocast casts: see computed_dtype() in
// aten.cpp.
bool is_wide_on_cpu(const Tensor& signal) {
  return signal.is_cpu() && at::isReducedFloatingType(signal.scalar_type()) &&
         !at::autocast::is_autocast_enabled(at::kCPU);
}

void check_dimensions_of_image(const Tensor& signal, const Tensor& weight) {
  TORCH_CHECK(signal.dim() == 3 && weight.dim() == 3, "gpuopt::_conv1d_image: signal and weight ",
              "must have 3 dimensions: expected (N, C, L) and (O, C, K), got ", signal.sym_sizes(),
              " and ", weight.sym_sizes());
}

Tensor conv1d_image(const Conv1dImage& op) {
  const Tensor &signal = op.signal, &weight = op.weight;
  check_dimensions_of_image(signal, weight);
  const ImageGeometry geometry = geometry_of(op);
  if (!is_wide_on_cpu(signal)) return convolve_composite(signal, weight, op.bias, geometry);
  TensorOption wide_bias;
  if (is_given(op.bias)) wide_bias = op.bias->to(at::kFloat);
  return convolve_composite(signal.to(at::kFloat), weight.to(at::kFloat), wide_bias, geometry)
      .to(signal.scalar_type());
}

// The views of a signal, of its weight and of its result would be three more nodes.
Tensor conv1d_image_autograd(const Conv1dImage& op) {
  const Tensor &signal = op.signal, &weight = op.weight;
  const bool changes_dtype =
      is_wide_on_cpu(signal) || at::autocast::is_autocast_enabled(signal.device().type());
  if (has_tangents(op) || changes_dtype) return conv1d_image(op);
  check_dimensions_of_image(signal, weight);
  const ImageGeometry geometry = geometry_of(op);
  const auto image_of = [](const Tensor& tensor) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return tensor.unsqueeze(2);
  };
  Tensor last = signal, image = image_of(signal);
  if (!is_last(image)) {
    last = to_channels_last(signal);
    image = image_of(last);
  }
  NodePtr<Conv1dImageBackward> node;
  if (requires_grad(op)) node = make_node<Conv1dImageBackward>(last, weight, op.bias, geometry);
  Tensor result;
  {
    at::AutoDispatchBelowADInplaceOrView guard;
    result = convolve_image(image, weight, op.bias, geometry);
  }
  if (node) torch::autograd::set_history(result, node);
  return result;
}

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  register_op<Conv1dImage, Composite<conv1d_image>,
              At<c10::DispatchKey::AutogradCPU, conv1d_image_autograd>,
              At<c10::DispatchKey::AutogradCUDA, conv1d_image_autograd>>(m);
}

}  // namespace
}  // namespace gpuopt::conv1d
