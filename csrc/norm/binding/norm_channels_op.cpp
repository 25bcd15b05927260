// Group, instance and batch norm: schemas, and the kernels for CPU, Meta and vmap.
#include <ATen/ATen.h>

#include "binding/autocast.h"
#include "norm/binding/norm_channels_formula.h"

namespace gpuopt::norm {
namespace {

using c10::SymInt;

// ---------------------------------------------------------------- the functions for users

// On CUDA, autocast computes a group norm in float32, as ATen's. It has no rule for batch norm.
Tensor group_norm(const GroupNorm& op) {
  const char* name = name_of<GroupNorm>();
  const auto device = op.input.device().type();
  if (device == at::kCUDA && is_autocasting(device)) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    return call_mapped(op, [&](const Tensor& tensor) {
      return at::autocast::cached_cast(at::kFloat, tensor, device);
    });
  }
  check_input(name, op.input);
  check_groups(name, op.input, op.groups);
  check_factors(name, op.input, op.weight, op.bias);
  const Activation activation =
      op.activation.has_value() ? to_activation(name, *op.activation) : Activation::kNone;
  return std::get<0>(call(GroupNormGroups{op.input, op.weight, op.bias, op.groups, op.eps,
                                          static_cast<int64_t>(activation)}));
}

// running = (1 - momentum) * running + momentum * found, rounded once.
void update_running(const TensorOption& running, const Tensor& found, double momentum) {
  const Tensor& target = *running;
  if (target.scalar_type() == found.scalar_type()) {
    target.lerp_(found, momentum);
  } else {
    target.copy_(at::lerp(target.to(found.scalar_type()), found, momentum));
  }
}

template <typename Op>
void check_running(const char* name, const Op& op, bool is_needed) {
  check_input(name, op.input);
  check_rank(name, op.input);
  check_factors(name, op.input, op.weight, op.bias);
  TORCH_CHECK_VALUE(
      is_given(op.running_mean) == is_given(op.running_var), name,
      ": running_mean and running_var must be given together: expected both or neither, "
      "got one");
  TORCH_CHECK(is_given(op.running_mean) || !is_needed, name,
              ": running_mean must be given if statistics are not of the input: expected a Tensor, "
              "got None");
  if (!is_given(op.running_mean)) return;
  check_channels(name, {"running_mean", *op.running_mean}, op.input, op.input.sym_size(1));
  check_channels(name, {"running_var", *op.running_var}, op.input, op.input.sym_size(1));
}

Tensor batch_norm(const BatchNorm& op) {
  const char* name = name_of<BatchNorm>();
  check_running(name, op, !op.training);
  if (!op.training) {
    return std::get<0>(call(
        BatchNormChannels{op.input, op.weight, op.bias, op.running_mean, op.running_var, op.eps}));
  }
  const auto [out, mean, rstd, variance] =
      call(BatchNormChannels{op.input, op.weight, op.bias, std::nullopt, std::nullopt, op.eps});
  if (is_given(op.running_mean) && !is_known_zero(op.input.sym_numel())) {
    update_running(op.running_mean, mean.detach(), op.momentum);
    update_running(op.running_var, variance.detach(), op.momentum);
  }
  return out;
}

// With running statistics, samples are channels, and the statistics of all samples are averaged.
Tensor instance_norm(const InstanceNorm& op) {
  const char* name = name_of<InstanceNorm>();
  check_running(name, op, !op.use_input_stats);
  if (!op.use_input_stats) {
    return std::get<0>(call(
        BatchNormChannels{op.input, op.weight, op.bias, op.running_mean, op.running_var, op.eps}));
  }
  const SymInt samples = op.input.sym_size(0), channels = op.input.sym_size(1);
  if (!is_given(op.running_mean)) {
    return std::get<0>(call(GroupNormGroups{op.input, op.weight, op.bias, channels, op.eps}));
  }
  auto sizes = op.input.sym_sizes().vec();
  sizes[0] = 1;
  sizes[1] = samples * channels;
  const auto repeat = [&](const TensorOption& tensor) {
    return is_given(tensor) ? TensorOption(tensor->repeat_symint({samples})) : std::nullopt;
  };
  const auto [out, mean, rstd, variance] =
      call(BatchNormChannels{op.input.reshape_symint(sizes), repeat(op.weight), repeat(op.bias),
                             std::nullopt, std::nullopt, op.eps});
  const auto average = [&](const Tensor& found) {
    return found.detach().reshape_symint({samples, channels}).mean(0);
  };
  update_running(op.running_mean, average(mean), op.momentum);
  update_running(op.running_var, average(variance), op.momentum);
  return out.reshape_symint(op.input.sym_sizes());
}

// ---------------------------------------------------------------- CPU and vmap

template <typename Op>
typename Op::Result result_of(const ChannelNormal& found) {
  if constexpr (Op::kIsBatch) {
    return {found.out, found.mean, found.rstd, found.variance};
  } else {
    return {found.out, found.mean, found.rstd};
  }
}

template <typename Op>
typename Op::Result channels_by_formula(const Op& op) {
  check_channel_norm(op);
  return result_of<Op>(normalized_by_aten(op));
}

ChannelNormal normalized_on_cpu(const GroupNormGroups& op, const Tensor& input,
                                const TensorOption& weight, const TensorOption& bias) {
  const int64_t samples = input.size(0), channels = input.size(1);
  const auto [out, mean, rstd] =
      at::native_group_norm(input, weight, bias, samples, channels,
                            input.numel() / (samples * channels), op.groups.expect_int(), op.eps);
  return {out, mean, rstd, Tensor()};
}
ChannelNormal normalized_on_cpu(const BatchNormChannels& op, const Tensor& input,
                                const TensorOption& weight, const TensorOption& bias) {
  if (has_given_statistics(op)) {
    const Tensor mean = op.mean->to(input.scalar_type()),
                 variance = op.variance->to(input.scalar_type());
    const Tensor out = std::get<0>(at::native_batch_norm(input, weight, bias, mean, variance,
                                                         /*training=*/false, 0, op.eps));
    return {out, mean.clone(), variance.add(op.eps).rsqrt(), at::empty({0}, mean.options())};
  }
  const auto [out, mean, rstd] = at::native_batch_norm(input, weight, bias, std::nullopt,
                                                       std::nullopt, /*training=*/true, 0, op.eps);
  at::DimVector dims{0};
  for (int64_t d = 2; d < input.dim(); ++d) dims.push_back(d);
  return {out, mean, rstd, input.var(dims, /*unbiased=*/true)};
}

template <typename Op>
typename Op::Result channels_on_cpu(const Op& op) {
  if (op.input.numel() == 0) return channels_by_formula(op);
  check_channel_norm(op);
  const auto dtype = op.input.scalar_type(), compute = compute_type(op.input);
  const auto cast = [&](const TensorOption& tensor) {
    return is_given(tensor) ? TensorOption(tensor->to(compute).contiguous()) : std::nullopt;
  };
  const Tensor input = op.input.to(compute).contiguous(op.input.suggest_memory_format());
  ChannelNormal found = normalized_on_cpu(op, input, cast(op.weight), cast(op.bias));
  found.out = laid_out_as(activated(found.out, activation_of(op)).to(dtype), op.input);
  return result_of<Op>(found);
}

BatchNormTraining::Result batch_training_on_cpu(const BatchNormTraining& op) {
  const auto [out, mean, rstd, variance] = channels_on_cpu(
      BatchNormChannels{op.input, op.weight, op.bias, std::nullopt, std::nullopt, op.eps});
  if (is_given(op.running_mean)) {
    // ATen's kernel counts no version of these tensors. The layers above do.
    const at::AutoDispatchBelowADInplaceOrView guard;
    update_running(op.running_mean, mean, op.momentum);
    update_running(op.running_var, variance, op.momentum);
  }
  return {out, mean, rstd};
}

template <typename Op>
typename Op::Result channel_gradients_on_cpu(const Op& op) {
  check_channel_norm(op);
  return gradients_on_cpu(op);
}

template <typename Op>
typename Op::Result channel_gradients_by_aten(const Op& op) {
  check_channel_norm(op);
  return gradients_by_aten(op);
}

// ---------------------------------------------------------------- Meta: shapes, possibly symbolic

Tensor like_channels_meta(const Tensor& input) {
  if (!is_channels_last(input)) return at::empty_symint(input.sym_sizes(), input.options());
  return at::empty_strided_symint(input.sym_sizes(), channels_last_strides(input.sym_sizes()),
                                  input.options());
}

template <typename Op>
typename Op::Result channels_meta(const Op& op) {
  check_channel_norm(op);
  const auto options = op.input.options().dtype(compute_type(op.input));
  const auto statistic = [&] {
    if (Op::kIsBatch) return at::empty_symint(channel_sizes(op.input), options);
    return at::empty_symint({op.input.sym_size(0), groups_of(op)}, options);
  };
  if constexpr (Op::kIsBatch) {
    return {like_channels_meta(op.input), statistic(), statistic(),
            has_given_statistics(op) ? at::empty({0}, options) : statistic()};
  } else {
    return {like_channels_meta(op.input), statistic(), statistic()};
  }
}

BatchNormTraining::Result batch_training_meta(const BatchNormTraining& op) {
  const auto [out, mean, rstd, variance] = channels_meta(
      BatchNormChannels{op.input, op.weight, op.bias, std::nullopt, std::nullopt, op.eps});
  return {out, mean, rstd};
}

template <typename Op>
typename Op::Result channel_gradients_meta(const Op& op) {
  check_channel_norm(op);
  const auto of_channels = [&](bool is_wanted) {
    if (!is_wanted) return Tensor();
    return at::empty_symint(channel_sizes(op.input), op.input.options().dtype(parameter_type(op)));
  };
  return {op.mask[0] ? like_channels_meta(op.input) : Tensor(), of_channels(op.mask[1]),
          of_channels(op.mask[2])};
}

template <typename Op>
void register_channels(torch::Library& m) {
  register_op<Op, Cpu<channels_on_cpu<Op>>, Meta<channels_meta<Op>>,
              Batched<channels_by_formula<Op>>>(m);
}
template <typename Op>
void register_channel_gradients(torch::Library& m) {
  register_op<Op, Cpu<channel_gradients_on_cpu<Op>>, Meta<channel_gradients_meta<Op>>,
              Batched<channel_gradients_by_aten<Op>>>(m);
}

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  register_op<GroupNorm, Composite<group_norm>>(m);
  register_op<BatchNorm, Composite<batch_norm>>(m);
  register_op<InstanceNorm, Composite<instance_norm>>(m);
  register_channels<GroupNormGroups>(m);
  register_channels<BatchNormChannels>(m);
  register_op<BatchNormTraining, Cpu<batch_training_on_cpu>, Meta<batch_training_meta>>(m);
  register_channel_gradients<GroupNormGradients>(m);
  register_channel_gradients<BatchNormGradients>(m);
}

}  // namespace
}  // namespace gpuopt::norm
