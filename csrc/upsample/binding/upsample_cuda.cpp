// The CUDA kernels of gpuopt::upsample_nearest2d, upsample_nearest_exact2d and their backwards: a
// checked call -> Problem -> plan -> launcher.
#include "binding/cuda_launch.h"
#include "binding/unfilled.h"
#include "reduce/binding/reduce_ops.h"
#include "upsample/binding/upsample_check.h"
#include "upsample/upsample.h"
#include "upsample/upsample_backward_plan.h"
#include "upsample/upsample_forward_plan.h"

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

template <typename Op>
Problem make_problem(const Op& op, const Tensor& from, const Tensor& to, const Sizes& sizes) {
  Problem problem;
  problem.from = from.const_data_ptr();
  problem.to = to.mutable_data_ptr();
  problem.dtype = to_upsample_dtype(name_of<Op>(), from.scalar_type());
  problem.batch = sizes.batch;
  problem.channels = sizes.channels;
  problem.height =
      make_axis(sizes.in_height, sizes.out_height,
                source_step(op.scales_h, sizes.in_height, sizes.out_height), Op::kExact);
  problem.width = make_axis(sizes.in_width, sizes.out_width,
                            source_step(op.scales_w, sizes.in_width, sizes.out_width), Op::kExact);
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

// Computes a result that has elements.
template <typename Op>
void upsample_into(const Op& op, const Tensor& from, const Tensor& result, const Sizes& sizes) {
  if (sizes.in_height == sizes.out_height && sizes.in_width == sizes.out_width) {
    result.copy_(from);  // ATen's kernel is at the roofline
    return;
  }
  if (has_long_rows(result, sizes)) {
    const Tensor contiguous = unfilled(result.sizes(), result.options());
    upsample_into(op, from, contiguous, sizes);
    result.copy_(contiguous);
    return;
  }
  const Tensor source = with_short_strides(from, result);
  const Problem problem = make_problem(op, source, result, sizes);
  const Device device{sm_count()};
  const auto stream = c10::cuda::getCurrentCUDAStream();
  record(kIsBackward<Op> ? "upsample.backward" : "upsample.forward", problem);
  if constexpr (kIsBackward<Op>) {
    check_launch(name_of<Op>(), launch(plan_backward(problem, device), stream));
  } else {
    check_launch(name_of<Op>(), launch(plan_forward(problem, device), stream));
  }
}

template <typename Op>
Tensor upsample_cuda(const Op& op) {
  const char* name = name_of<Op>();
  const Tensor& from = op.from;
  const Sizes sizes = check<int64_t>(op);
  check_memory(name, {{kIsBackward<Op> ? "grad_output" : "input", from}});
  to_upsample_dtype(name, from.scalar_type());
  const c10::cuda::CUDAGuard guard(from.device());
  const int64_t height = kIsBackward<Op> ? sizes.in_height : sizes.out_height;
  const int64_t width = kIsBackward<Op> ? sizes.in_width : sizes.out_width;
  Tensor result = unfilled({sizes.batch, sizes.channels, height, width},
                           from.options().memory_format(from.suggest_memory_format()));
  if (result.numel() == 0) return result;
  if (kIsBackward<Op> && height == 1 && width == 1) {  // a single window: a reduction
    at::AutoDispatchBelowAutograd no_grad;
    return call(Out<ReduceSum>{{from, at::IntArrayRef{2, 3}, /*keepdim=*/true, from.scalar_type()},
                               result});
  }
  upsample_into(op, from, result, sizes);
  return result;
}

TORCH_LIBRARY_IMPL(gpuopt, CUDA, m) {
  Ops::for_each([&]<typename Op>() { impl<Op, upsample_cuda<Op>>(m); });
}

}  // namespace
}  // namespace gpuopt::upsample
