// Group, instance and batch norm as operators of binding/op.h.
#pragma once

#include <array>
#include <tuple>

#include "binding/activation.h"
#include "norm/binding/norm_ops.h"

namespace gpuopt::norm {

struct GroupNorm {
  using Result = Tensor;
  static constexpr std::string_view kSchema =
      "group_norm(Tensor input, SymInt num_groups, Tensor? weight=None, Tensor? bias=None, float "
      "eps=1e-05, str? activation=None) -> Tensor";
  const Tensor& input;
  c10::SymInt groups;
  const TensorOption &weight, &bias;
  double eps;
  std::optional<std::string_view> activation;
};

// As in ATen's schema, no argument says that the running statistics are written: the operator is
// made of others, which say it.
struct BatchNorm {
  using Result = Tensor;
  static constexpr std::string_view kSchema =
      "batch_norm(Tensor input, Tensor? running_mean=None, Tensor? running_var=None, "
      "Tensor? weight=None, Tensor? bias=None, bool training=False, float momentum=0.1, float "
      "eps=1e-05) -> Tensor";
  const Tensor& input;
  const TensorOption &running_mean, &running_var, &weight, &bias;
  bool training;
  double momentum, eps;
};

struct InstanceNorm {
  using Result = Tensor;
  static constexpr std::string_view kSchema =
      "instance_norm(Tensor input, Tensor? running_mean=None, Tensor? running_var=None, "
      "Tensor? weight=None, Tensor? bias=None, bool use_input_stats=True, float momentum=0.1, "
      "float eps=1e-05) -> Tensor";
  const Tensor& input;
  const TensorOption &running_mean, &running_var, &weight, &bias;
  bool use_input_stats;
  double momentum, eps;
};

// ---------------------------------------------------------------- with statistics

// mean and rstd: [samples, groups], in the compute type. The activation is a number of Activation.
struct GroupNormGroups {
  using Result = std::tuple<Tensor, Tensor, Tensor>;  // out, mean, rstd
  static constexpr std::string_view kSchema =
      "_group_norm(Tensor input, Tensor? weight, Tensor? bias, SymInt num_groups, float eps, int "
      "activation=0) -> (Tensor, Tensor, Tensor)";
  static constexpr bool kIsBatch = false;
  const Tensor& input;
  const TensorOption &weight, &bias;
  c10::SymInt groups;
  double eps;
  int64_t activation = 0;
};

// Normalises with the statistics of the input, or with `mean` and `variance` if they are given.
// mean, rstd and variance: [channels]. The variance is divided by one less than the number of
// values. It has size 0 if it was given.
struct BatchNormChannels {
  using Result = std::tuple<Tensor, Tensor, Tensor, Tensor>;  // out, mean, rstd, variance
  static constexpr std::string_view kSchema =
      "_batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? mean, Tensor? variance, "
      "float eps) -> (Tensor, Tensor, Tensor, Tensor)";
  static constexpr bool kIsBatch = true;
  const Tensor& input;
  const TensorOption &weight, &bias, &mean, &variance;
  double eps;
};

// Normalises with the statistics of the input, and changes the running ones. It is called below
// autograd.
struct BatchNormTraining {
  using Result = std::tuple<Tensor, Tensor, Tensor>;  // out, mean, rstd
  static constexpr std::string_view kSchema =
      "_batch_norm_training(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!)? running_mean, "
      "Tensor(b!)? running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor)";
  static constexpr bool kIsBatch = true;
  const Tensor& input;
  const TensorOption &weight, &bias, &running_mean, &running_var;
  double momentum, eps;
};

// As LayerNormGradients (norm_ops.h). The derivative of an activation needs the bias.
struct GroupNormGradients {
  using Result = std::tuple<Tensor, Tensor, Tensor>;
  static constexpr std::string_view kSchema =
      "_group_norm_backward(Tensor grad, Tensor input, Tensor mean, Tensor rstd, Tensor? weight, "
      "SymInt num_groups, float eps, bool[3] output_mask, Tensor? bias=None, int activation=0) -> "
      "(Tensor, Tensor, Tensor)";
  static constexpr bool kIsBatch = false;
  const Tensor &grad, &input, &mean, &rstd;
  const TensorOption& weight;
  c10::SymInt groups;
  double eps;
  std::array<bool, 3> mask;
  const TensorOption& bias;
  int64_t activation;
};

// If not `training`, mean and rstd do not depend on the input.
struct BatchNormGradients {
  using Result = std::tuple<Tensor, Tensor, Tensor>;
  static constexpr std::string_view kSchema =
      "_batch_norm_backward(Tensor grad, Tensor input, Tensor mean, Tensor rstd, Tensor? weight, "
      "bool training, float eps, bool[3] output_mask) -> (Tensor, Tensor, Tensor)";
  static constexpr bool kIsBatch = true;
  const Tensor &grad, &input, &mean, &rstd;
  const TensorOption& weight;
  bool training;
  double eps;
  std::array<bool, 3> mask;
};

using ChannelOps = OpList<GroupNormGroups, BatchNormChannels, BatchNormTraining, GroupNormGradients,
                          BatchNormGradients>;

// The number of groups of a sample's channels.
template <typename Op>
c10::SymInt groups_of(const Op& op) {
  if constexpr (Op::kIsBatch) {
    return op.input.sym_size(1);
  } else {
    return op.groups;
  }
}

// What is applied to the result.
template <typename Op>
Activation activation_of(const Op& op) {
  if constexpr (Op::kIsBatch) {
    return Activation::kNone;
  } else {
    return static_cast<Activation>(op.activation);
  }
}

// The dtype of the gradients of weight and bias.
template <typename Op>
at::ScalarType parameter_type(const Op& op) {
  const TensorOption bias = bias_of(op);
  if (is_given(op.weight)) return op.weight->scalar_type();
  return is_given(bias) ? bias->scalar_type() : op.input.scalar_type();
}

// Whether the statistics do not depend on the input.
template <typename Op>
bool has_given_statistics(const Op& op) {
  if constexpr (requires { op.training; }) {
    return !op.training;
  } else if constexpr (requires { op.variance; }) {
    return is_given(op.variance);
  } else {
    return false;
  }
}

}  // namespace gpuopt::norm
