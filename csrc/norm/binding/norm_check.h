// Checks the arguments of norms. The CUDA, CPU and Meta kernels and the derivatives all call these
// functions.
#pragma once

#include <limits>
#include <vector>

#include "binding/check.h"
#include "norm/binding/norm_ops.h"

namespace gpuopt::norm {

// The dtype of statistics and of all arithmetic.
inline at::ScalarType compute_type(const at::Tensor& input) {
  return input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// The epsilon of an RMS norm without one.
inline double default_eps(const at::Tensor& input) {
  return compute_type(input) == at::kDouble ? std::numeric_limits<double>::epsilon()
                                            : std::numeric_limits<float>::epsilon();
}

inline void check_input(const char* op, const at::Tensor& input) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      is_real_float(input.scalar_type()), op,
      ": input must be floating-point: expected float16, bfloat16, float32 or float64, got ",
      input.scalar_type());
}

// A weight or bias has the dtype of the input, or is float32 beside a half type.
inline void check_parameter(const char* op, NamedTensor parameter, const at::Tensor& input,
                            c10::SymIntArrayRef shape, const char* wanted) {
  const auto& [name, tensor] = parameter;
  check_device_of(op, parameter, {"input", input});
  const bool is_wide = tensor.scalar_type() == at::kFloat && input.element_size() == 2;
  TORCH_CHECK(tensor.scalar_type() == input.scalar_type() || is_wide, op, ": ", name,
              " must have input's dtype, or float32 beside a half type: expected ",
              input.scalar_type(), ", got ", tensor.scalar_type());
  TORCH_CHECK(may_have_shape(tensor, shape), op, ": ", name, " must have ", wanted, ": expected ",
              shape, ", got ", tensor.sym_sizes());
}

inline void check_parameters(const char* op, const at::Tensor& input, const TensorOption& weight,
                             const TensorOption& bias, c10::SymIntArrayRef shape,
                             const char* wanted = "the normalized shape") {
  if (is_given(weight)) check_parameter(op, {"weight", *weight}, input, shape, wanted);
  if (!is_given(bias)) return;
  check_parameter(op, {"bias", *bias}, input, shape, wanted);
  if (is_given(weight)) check_dtype_of(op, {"bias", *bias}, {"weight", *weight});
}

// The number of normalised dimensions.
inline int64_t check_shape(const char* op, const at::Tensor& input, c10::SymIntArrayRef shape) {
  TORCH_CHECK(!shape.empty(), op,
              ": normalized_shape must have a dimension: expected at least 1 size, got []");
  const auto sizes = input.sym_sizes();
  const auto dims = static_cast<int64_t>(shape.size());
  bool fits = dims <= input.dim();
  for (int64_t d = 0; fits && d < dims; ++d) {
    fits = TORCH_GUARD_OR_TRUE(sizes[input.dim() - dims + d].sym_eq(shape[d]));
  }
  TORCH_CHECK(fits, op, ": input must end with normalized_shape: expected a shape ending with ",
              shape, ", got ", sizes);
  return dims;
}

// The sizes of the last `dims` dimensions.
inline c10::SymIntArrayRef normalized_sizes(const char* op, const at::Tensor& input, int64_t dims) {
  TORCH_CHECK(1 <= dims && dims <= input.dim(), op,
              ": dims must count dimensions of input: expected a value from 1 to ", input.dim(),
              ", got ", dims);
  return input.sym_sizes().slice(input.dim() - dims);
}

// A value of each row, in any shape.
inline void check_statistic(const char* op, NamedTensor statistic, const at::Tensor& input,
                            int64_t dims) {
  check_device_of(op, statistic, {"input", input});
  c10::SymInt rows = 1;
  for (const c10::SymInt& size : input.sym_sizes().slice(0, input.dim() - dims)) rows = rows * size;
  TORCH_CHECK(TORCH_GUARD_OR_TRUE(statistic.tensor.sym_numel().sym_eq(rows)), op, ": ",
              statistic.name, " must have a value for each row: expected ", rows, ", got ",
              statistic.tensor.sym_numel());
}

// A tensor with the dtype, device and shape of the input.
inline void check_like_input(const char* op, NamedTensor argument, const at::Tensor& input) {
  check_dtype_of(op, argument, {"input", input});
  TORCH_CHECK(may_have_shape(argument.tensor, input.sym_sizes()), op, ": ", argument.name,
              " must have the shape of input: expected ", input.sym_sizes(), ", got ",
              argument.tensor.sym_sizes());
  check_device_of(op, argument, {"input", input});
}

template <typename Op>
void check(const Op& op) {
  const char* name = name_of<Op>();
  check_input(name, op.input);
  const c10::SymIntArrayRef shape = normalized_sizes(name, op.input, op.dims);
  if constexpr (requires { op.grad; }) {
    check_parameters(name, op.input, op.weight, std::nullopt, shape);
    check_like_input(name, {"grad", op.grad}, op.input);
    if (is_given(op.sum_grad)) check_like_input(name, {"sum_grad", *op.sum_grad}, op.input);
    check_statistic(name, {"rstd", op.rstd}, op.input, op.dims);
    if constexpr (requires { op.mean; }) {
      check_statistic(name, {"mean", op.mean}, op.input, op.dims);
    }
  } else {
    check_parameters(name, op.input, op.weight, bias_of(op), shape);
    if constexpr (kHasResidual<Op>) {
      check_like_input(name, {"residual", op.residual}, op.input);
    }
  }
}

// The shape of the statistics.
inline std::vector<c10::SymInt> statistics_sizes(const at::Tensor& input, int64_t dims) {
  auto sizes = input.sym_sizes().vec();
  std::fill(sizes.end() - dims, sizes.end(), c10::SymInt(1));
  return sizes;
}

}  // namespace gpuopt::norm
