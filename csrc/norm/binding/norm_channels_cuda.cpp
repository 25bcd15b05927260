// The CUDA kernels of group and batch norm.
#include <ATen/ATen.h>

#include <limits>

#include "binding/cuda_launch.h"
#include "binding/unfilled.h"
#include "norm/binding/norm_channels_check.h"
#include "norm/binding/norm_cuda.h"

namespace gpuopt::norm {
namespace {

// Tensors as kernels read them: dense, with channels outermost or innermost in a sample.
struct ChannelLayout {
  bool is_last;

  explicit ChannelLayout(const Tensor& input) : is_last(is_channels_last(input)) {}

  Tensor dense(const Tensor& tensor) const {
    return is_last ? tensor.movedim(1, -1).contiguous() : tensor.contiguous();
  }
  Tensor unfilled_like(const Tensor& input) const {
    if (!is_last) return unfilled(input.sizes(), input.options());
    return unfilled_strided(input.sizes(), channels_last_strides(input.sizes()), input.options());
  }
};

template <typename Op>
Channels channels_of(const char* name, const Op& op, bool is_last) {
  Channels shape;
  shape.samples = op.input.size(0);
  shape.channels = op.input.size(1);
  shape.positions = op.input.numel() / (shape.samples * shape.channels);
  shape.is_over_samples = Op::kIsBatch;
  shape.is_channels_last = is_last;
  if constexpr (Op::kIsBatch) {
    shape.groups = shape.channels;
  } else {
    shape.groups = op.groups.expect_int();
  }
  // A block is numbered for each group, and a team of threads for each plane.
  const bool has_planes = !is_last && shape.positions > 1;
  const int64_t most = kMaxIndex32 - kWalkThreads;
  const int64_t count =
      std::max(shape.statistics(), has_planes ? shape.samples * shape.channels : int64_t{0});
  TORCH_CHECK(
      count <= most, name,
      ": input must have fewer than 2^31 groups, and channels of samples: expected at most ", most,
      ", got ", count);
  return shape;
}

template <typename Op>
BatchNormChannels::Result normalize_by_kernels(const Op& op) {
  const char* name = name_of<Op>();
  check_channel_norm(op);
  check_memory(name, {{"input", op.input},
                      {"weight", value_or_undefined(op.weight)},
                      {"bias", value_or_undefined(op.bias)}});
  const c10::cuda::CUDAGuard guard(op.input.device());
  const ChannelLayout layout(op.input);
  const Tensor out = layout.unfilled_like(op.input);
  const auto options = op.input.options().dtype(compute_type(op.input));
  const bool is_running = has_given_statistics(op);
  at::DimVector sizes;
  if constexpr (!Op::kIsBatch) sizes.assign({op.input.size(0), op.groups.expect_int()});
  if constexpr (Op::kIsBatch) sizes.assign({op.input.size(1)});
  const Tensor mean = unfilled(sizes, options), rstd = unfilled(sizes, options);
  Tensor variance;
  if constexpr (requires { op.variance; }) {
    variance = unfilled(is_running ? at::DimVector{0} : sizes, options);
  }
  if (out.numel() == 0) {
    mean.zero_();
    rstd.fill_(std::numeric_limits<double>::quiet_NaN());
    if (variance.defined()) variance.fill_(std::numeric_limits<double>::quiet_NaN());
    return {out, mean, rstd, variance};
  }
  const Tensor input = layout.dense(op.input);
  const DenseParameters parameters(name, input, op.weight, op.bias);
  ChannelForward problem;
  problem.shape = channels_of(name, op, layout.is_last);
  problem.input = input.const_data_ptr();
  problem.out = out.mutable_data_ptr();
  problem.mean = mean.mutable_data_ptr();
  problem.rstd = rstd.mutable_data_ptr();
  if (variance.defined() && variance.numel() > 0) {
    problem.variance = variance.mutable_data_ptr();
  }
  problem.affine = parameters.affine(activation_of(op));
  problem.dtype = to_dtype(name, input.scalar_type());
  problem.eps = op.eps;
  Tensor given_mean, given_variance;
  if constexpr (requires { op.momentum; }) {
    if (is_given(op.running_mean)) {
      problem.running = {op.running_mean->mutable_data_ptr(), op.running_var->mutable_data_ptr(),
                         to_dtype(name, op.running_mean->scalar_type()), op.momentum};
    }
  } else if constexpr (Op::kIsBatch) {
    if (is_running) {
      given_mean = op.mean->contiguous();
      given_variance = op.variance->to(given_mean.scalar_type()).contiguous();
      problem.given = {given_mean.const_data_ptr(), given_variance.const_data_ptr(),
                       to_dtype(name, given_mean.scalar_type())};
    }
  }
  plan_and_launch(name, problem);
  return {out, mean, rstd, variance};
}

BatchNormChannels::Result on_cuda(const BatchNormChannels& op) { return normalize_by_kernels(op); }
// The running statistics are dense and of one dtype: the override takes no others.
BatchNormTraining::Result on_cuda(const BatchNormTraining& op) {
  const auto [out, mean, rstd, variance] = normalize_by_kernels(op);
  return {out, mean, rstd};
}
GroupNormGroups::Result on_cuda(const GroupNormGroups& op) {
  const auto [out, mean, rstd, variance] = normalize_by_kernels(op);
  return {out, mean, rstd};
}

template <typename Op>
GroupNormGradients::Result differentiate_by_kernels(const Op& op) {
  const char* name = name_of<Op>();
  check_channel_norm(op);
  check_memory(name, {{"grad", op.grad},
                      {"input", op.input},
                      {"weight", value_or_undefined(op.weight)},
                      {"bias", value_or_undefined(bias_of(op))},
                      {"mean", op.mean},
                      {"rstd", op.rstd}});
  const c10::cuda::CUDAGuard guard(op.input.device());
  const ChannelLayout layout(op.input);
  const auto of_weight = op.input.options().dtype(parameter_type(op));
  const auto of_channels = [&](bool is_wanted) {
    return is_wanted ? unfilled(op.input.sizes().slice(1, 1), of_weight) : Tensor();
  };
  const Tensor input_grad = op.mask[0] ? layout.unfilled_like(op.input) : Tensor();
  const Tensor weight_grad = of_channels(op.mask[1]), bias_grad = of_channels(op.mask[2]);
  const GroupNormGradients::Result results{input_grad, weight_grad, bias_grad};
  if (op.input.numel() == 0) {
    if (weight_grad.defined()) weight_grad.zero_();
    if (bias_grad.defined()) bias_grad.zero_();
    return results;
  }
  if (!op.mask[0] && !op.mask[1] && !op.mask[2]) return results;
  const Tensor input = layout.dense(op.input), grad = layout.dense(op.grad);
  const DenseParameters parameters(name, input, op.weight, bias_of(op));
  const Tensor mean = op.mean.to(compute_type(input)).contiguous();
  const Tensor rstd = op.rstd.to(compute_type(input)).contiguous();
  ChannelBackward problem;
  problem.shape = channels_of(name, op, layout.is_last);
  problem.grad = grad.const_data_ptr();
  problem.input = input.const_data_ptr();
  problem.mean = mean.const_data_ptr();
  problem.rstd = rstd.const_data_ptr();
  problem.input_grad = written(input_grad);
  problem.weight_grad = written(weight_grad);
  problem.bias_grad = written(bias_grad);
  problem.is_given = has_given_statistics(op);
  problem.affine = parameters.affine(activation_of(op));
  problem.dtype = to_dtype(name, input.scalar_type());
  plan_and_launch(name, problem);
  return results;
}

TORCH_LIBRARY_IMPL(gpuopt, CUDA, m) {
  impl<GroupNormGroups, KernelOf<GroupNormGroups>(on_cuda)>(m);
  impl<BatchNormChannels, KernelOf<BatchNormChannels>(on_cuda)>(m);
  impl<BatchNormTraining, KernelOf<BatchNormTraining>(on_cuda)>(m);
  impl<GroupNormGradients, differentiate_by_kernels<GroupNormGradients>>(m);
  impl<BatchNormGradients, differentiate_by_kernels<BatchNormGradients>>(m);
}

}  // namespace
}  // namespace gpuopt::norm
