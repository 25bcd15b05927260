// Layer norm and RMS norm as operators of binding/op.h.
#pragma once

#include <array>
#include <tuple>

#include "binding/op.h"
#include "binding/optional.h"

namespace gpuopt::norm {

using at::Tensor;

struct LayerNorm {
  using Result = Tensor;
  static constexpr std::string_view kSchema =
      "layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None, "
      "float eps=1e-05) -> Tensor";
  const Tensor& input;
  c10::SymIntArrayRef shape;
  const TensorOption &weight, &bias;
  double eps;
};

struct RmsNorm {
  using Result = Tensor;
  static constexpr std::string_view kSchema =
      "rms_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, float? eps=None) -> "
      "Tensor";
  const Tensor& input;
  c10::SymIntArrayRef shape;
  const TensorOption& weight;
  std::optional<double> eps;
};

// The norm of input + residual, and this sum.
struct AddLayerNorm {
  using Result = std::tuple<Tensor, Tensor>;
  static constexpr std::string_view kSchema =
      "add_layer_norm(Tensor input, Tensor residual, SymInt[] normalized_shape, Tensor? "
      "weight=None, Tensor? bias=None, float eps=1e-05) -> (Tensor, Tensor)";
  const Tensor &input, &residual;
  c10::SymIntArrayRef shape;
  const TensorOption &weight, &bias;
  double eps;
};

struct AddRmsNorm {
  using Result = std::tuple<Tensor, Tensor>;
  static constexpr std::string_view kSchema =
      "add_rms_norm(Tensor input, Tensor residual, SymInt[] normalized_shape, Tensor? "
      "weight=None, float? eps=None) -> (Tensor, Tensor)";
  const Tensor &input, &residual;
  c10::SymIntArrayRef shape;
  const TensorOption& weight;
  std::optional<double> eps;
};

// ---------------------------------------------------------------- with the statistics of rows

// Over the last `dims` dimensions. The mean and 1 / sqrt(variance + eps) are of the compute type,
// and have size 1 in these dimensions.
struct LayerNormRows {
  using Result = std::tuple<Tensor, Tensor, Tensor>;  // out, mean, rstd
  static constexpr std::string_view kSchema =
      "_layer_norm(Tensor input, Tensor? weight, Tensor? bias, int dims, float eps) -> (Tensor, "
      "Tensor, Tensor)";
  static constexpr bool kIsRms = false;
  const Tensor& input;
  const TensorOption &weight, &bias;
  int64_t dims;
  double eps;
};

struct RmsNormRows {
  using Result = std::tuple<Tensor, Tensor>;  // out, rstd
  static constexpr std::string_view kSchema =
      "_rms_norm(Tensor input, Tensor? weight, int dims, float eps) -> (Tensor, Tensor)";
  static constexpr bool kIsRms = true;
  const Tensor& input;
  const TensorOption& weight;
  int64_t dims;
  double eps;
};

struct AddLayerNormRows {
  using Result = std::tuple<Tensor, Tensor, Tensor, Tensor>;  // out, mean, rstd, sum
  static constexpr std::string_view kSchema =
      "_add_layer_norm(Tensor input, Tensor residual, Tensor? weight, Tensor? bias, int dims, "
      "float eps) -> (Tensor, Tensor, Tensor, Tensor)";
  static constexpr bool kIsRms = false;
  const Tensor &input, &residual;
  const TensorOption &weight, &bias;
  int64_t dims;
  double eps;

  LayerNormRows of(const Tensor& sum) const { return {sum, weight, bias, dims, eps}; }
};

struct AddRmsNormRows {
  using Result = std::tuple<Tensor, Tensor, Tensor>;  // out, rstd, sum
  static constexpr std::string_view kSchema =
      "_add_rms_norm(Tensor input, Tensor residual, Tensor? weight, int dims, float eps) -> "
      "(Tensor, Tensor, Tensor)";
  static constexpr bool kIsRms = true;
  const Tensor &input, &residual;
  const TensorOption& weight;
  int64_t dims;
  double eps;

  RmsNormRows of(const Tensor& sum) const { return {sum, weight, dims, eps}; }
};

// The gradients of input, weight and bias. Gradients that `output_mask` does not want are
// undefined. A weight that is not given is 1, of the input's dtype. Derivatives of the gradients
// find the statistics again, for which they need `eps`. `sum_grad` is added to the gradient of the
// input: where this is the sum of input and residual, it has other uses.
struct LayerNormGradients {
  using Result = std::tuple<Tensor, Tensor, Tensor>;
  static constexpr std::string_view kSchema =
      "_layer_norm_backward(Tensor grad, Tensor input, Tensor mean, Tensor rstd, Tensor? weight, "
      "int dims, float eps, bool[3] output_mask, Tensor? sum_grad=None) -> (Tensor, Tensor, "
      "Tensor)";
  static constexpr bool kIsRms = false;
  const Tensor &grad, &input, &mean, &rstd;
  const TensorOption& weight;
  int64_t dims;
  double eps;
  std::array<bool, 3> mask;
  const TensorOption& sum_grad;
};

struct RmsNormGradients {
  using Result = std::tuple<Tensor, Tensor>;
  static constexpr std::string_view kSchema =
      "_rms_norm_backward(Tensor grad, Tensor input, Tensor rstd, Tensor? weight, int dims, "
      "float eps, bool[2] output_mask, Tensor? sum_grad=None) -> (Tensor, Tensor)";
  static constexpr bool kIsRms = true;
  const Tensor &grad, &input, &rstd;
  const TensorOption& weight;
  int64_t dims;
  double eps;
  std::array<bool, 2> mask;
  const TensorOption& sum_grad;
};

using RowsOps = OpList<LayerNormRows, RmsNormRows>;
using AddRowsOps = OpList<AddLayerNormRows, AddRmsNormRows>;
using GradientOps = OpList<LayerNormGradients, RmsNormGradients>;

template <typename Op>
constexpr bool kHasResidual = requires(const Op& op) { op.residual; };

template <typename Op>
TensorOption residual_of(const Op& op) {
  if constexpr (kHasResidual<Op>) {
    return op.residual;
  } else {
    return std::nullopt;
  }
}

// The bias of a forward operator. RMS norm has none.
template <typename Op>
TensorOption bias_of(const Op& op) {
  if constexpr (requires { op.bias; }) {
    return op.bias;
  } else {
    return std::nullopt;
  }
}

// The results of a forward operator, among all that there are.
template <typename Op>
typename Op::Result results_of(const Tensor& out, const Tensor& mean, const Tensor& rstd,
                               const Tensor& sum) {
  const auto rows = [&] {
    if constexpr (Op::kIsRms) return std::tuple(out, rstd);
    if constexpr (!Op::kIsRms) return std::tuple(out, mean, rstd);
  }();
  if constexpr (kHasResidual<Op>) return std::tuple_cat(rows, std::tuple(sum));
  if constexpr (!kHasResidual<Op>) return rows;
}

template <typename Op>
typename Op::Result gradients_of(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  if constexpr (Op::kIsRms) return {input, weight};
  if constexpr (!Op::kIsRms) return {input, weight, bias};
}

}  // namespace gpuopt::norm
