// The CUDA kernels of gpuopt::upsample_nearest2d, upsample_nearest_exact2d and their backwards: a
// checked call -> Problem -> launcher.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "binding/cuda_launch.h"
#include "binding/unfilled.h"
#include "reduce/binding/reduce_ops.h"
#include "upsample/binding/upsample_check.h"
#include "upsample/upsample.h"

namespace gpuopt::upsample {
namespace {

using at::Tensor;
using Scale = std::optional<double>;

// Converts a dtype, and raises for dtypes that ATen does not support either.
DType to_upsample_dtype(const char* op, at::ScalarType type) {
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(type) || type == at::kByte, op,
                              " (CUDA) is not implemented for ", type,
                              ": expected float16, bfloat16, float32, float64 or uint8");
  return to_dtype(op, type);
}

// Input pixels per output pixel, as ATen's compute_scales_value<float>.
float source_step(Scale scale, int64_t in, int64_t out) {
  if (scale.has_value() && *scale > 0) return static_cast<float>(1.0 / *scale);
  return static_cast<float>(in) / static_cast<float>(out);
}

Problem make_problem(const char* op, const Tensor& from, const Tensor& to, const Sizes& sizes,
                     Scale scales_h, Scale scales_w, bool exact) {
  Problem problem;
  problem.from = from.const_data_ptr();
  problem.to = to.mutable_data_ptr();
  problem.dtype = to_upsample_dtype(op, from.scalar_type());
  problem.batch = sizes.batch;
  problem.channels = sizes.channels;
  problem.height = make_axis(sizes.in_height, sizes.out_height,
                             source_step(scales_h, sizes.in_height, sizes.out_height), exact);
  problem.width = make_axis(sizes.in_width, sizes.out_width,
                            source_step(scales_w, sizes.in_width, sizes.out_width), exact);
  problem.batch_stride = from.stride(0);
  problem.channel_stride = from.stride(1);
  problem.row_stride = from.stride(2);
  problem.pixel_stride = from.stride(3);
  problem.channels_last = to.suggest_memory_format() == at::MemoryFormat::ChannelsLast;
  return problem;
}

// Kernels use 32-bit strides between channels and between pixels. They also use a 32-bit number of
// channels where images are not equally far apart. Tensors beyond these limits are copied, to the
// memory format of the result: contiguous() in the tensor's own format returns the tensor itself.
Tensor with_short_strides(const Tensor& tensor, const Tensor& result) {
  const bool many_channels = tensor.size(0) > 1 && tensor.size(1) > INT32_MAX;
  if (!many_channels && tensor.stride(1) <= INT32_MAX && tensor.stride(3) <= INT32_MAX) {
    return tensor;
  }
  return tensor.contiguous(result.suggest_memory_format());
}

// Kernels number the values of a row with 31 bits. Only channels_last images with very many
// channels have longer rows. Their result is computed as a contiguous tensor and copied.
bool has_long_rows(const Tensor& result, const Sizes& sizes) {
  return result.suggest_memory_format() == at::MemoryFormat::ChannelsLast &&
         sizes.channels * std::max(sizes.in_width, sizes.out_width) > kMaxRowUnits;
}

// Runs start(problem, device, stream) for a result that has elements.
template <typename Start>
void launch_into(const char* op, const Tensor& from, const Tensor& result, const Sizes& sizes,
                 Scale scales_h, Scale scales_w, bool exact, Start&& start) {
  if (sizes.in_height == sizes.out_height && sizes.in_width == sizes.out_width) {
    result.copy_(from);  // ATen's kernel is at the roofline
    return;
  }
  if (has_long_rows(result, sizes)) {
    const Tensor contiguous = unfilled(result.sizes(), result.options());
    launch_into(op, from, contiguous, sizes, scales_h, scales_w, exact, start);
    result.copy_(contiguous);
    return;
  }
  const Tensor source = with_short_strides(from, result);
  const Problem problem = make_problem(op, source, result, sizes, scales_h, scales_w, exact);
  check_launch(op, start(problem, Device{sm_count()}, c10::cuda::getCurrentCUDAStream()));
}

Tensor forward_cuda(const char* op, const Tensor& self, at::IntArrayRef output_size, Scale scales_h,
                    Scale scales_w, bool exact) {
  const Sizes sizes = check_forward(op, self, output_size);
  check_memory(op, {{"input", self}});
  to_upsample_dtype(op, self.scalar_type());
  const c10::cuda::CUDAGuard guard(self.device());
  Tensor out = unfilled({sizes.batch, sizes.channels, sizes.out_height, sizes.out_width},
                        self.options().memory_format(self.suggest_memory_format()));
  if (out.numel() == 0) return out;
  launch_into(op, self, out, sizes, scales_h, scales_w, exact, forward);
  return out;
}

Tensor backward_cuda(const char* op, const Tensor& grad_output, at::IntArrayRef output_size,
                     at::IntArrayRef input_size, Scale scales_h, Scale scales_w, bool exact) {
  const Sizes sizes = check_backward(op, grad_output, output_size, input_size);
  check_memory(op, {{"grad_output", grad_output}});
  to_upsample_dtype(op, grad_output.scalar_type());
  const c10::cuda::CUDAGuard guard(grad_output.device());
  Tensor grad_input = unfilled(
      input_size, grad_output.options().memory_format(grad_output.suggest_memory_format()));
  if (grad_input.numel() == 0) return grad_input;
  if (sizes.in_height == 1 && sizes.in_width == 1) {  // a single window: a reduction
    at::AutoDispatchBelowAutograd no_grad;
    return ops::reduce_sum_out().call(grad_output, at::IntArrayRef{2, 3}, /*keepdim=*/true,
                                      grad_output.scalar_type(), grad_input);
  }
  launch_into(op, grad_output, grad_input, sizes, scales_h, scales_w, exact, backward);
  return grad_input;
}

Tensor nearest_cuda(const Tensor& self, at::IntArrayRef output_size, Scale scales_h,
                    Scale scales_w) {
  return forward_cuda("gpuopt::upsample_nearest2d", self, output_size, scales_h, scales_w,
                      /*exact=*/false);
}

Tensor exact_cuda(const Tensor& self, at::IntArrayRef output_size, Scale scales_h, Scale scales_w) {
  return forward_cuda("gpuopt::upsample_nearest_exact2d", self, output_size, scales_h, scales_w,
                      /*exact=*/true);
}

Tensor nearest_backward_cuda(const Tensor& grad_output, at::IntArrayRef output_size,
                             at::IntArrayRef input_size, Scale scales_h, Scale scales_w) {
  return backward_cuda("gpuopt::upsample_nearest2d_backward", grad_output, output_size, input_size,
                       scales_h, scales_w, /*exact=*/false);
}

Tensor exact_backward_cuda(const Tensor& grad_output, at::IntArrayRef output_size,
                           at::IntArrayRef input_size, Scale scales_h, Scale scales_w) {
  return backward_cuda("gpuopt::upsample_nearest_exact2d_backward", grad_output, output_size,
                       input_size, scales_h, scales_w, /*exact=*/true);
}

TORCH_LIBRARY_IMPL(gpuopt, CUDA, m) {
  m.impl("upsample_nearest2d", nearest_cuda);
  m.impl("upsample_nearest_exact2d", exact_cuda);
  m.impl("upsample_nearest2d_backward", nearest_backward_cuda);
  m.impl("upsample_nearest_exact2d_backward", exact_backward_cuda);
}

}  // namespace
}  // namespace gpuopt::upsample
