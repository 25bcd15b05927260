// The CUDA kernels of norms.
#include "norm/binding/norm_cuda.h"

#include <ATen/ATen.h>

#include <limits>

#include "binding/cuda_launch.h"
#include "binding/unfilled.h"
#include "norm/binding/norm_check.h"

namespace gpuopt::norm {
namespace {

// Whether the values of a row lie side by side.
bool has_dense_rows(const Tensor& tensor, int64_t dims) {
  int64_t stride = 1;
  for (int64_t d = tensor.dim() - 1; d >= tensor.dim() - dims; --d) {
    if (tensor.size(d) != 1 && tensor.stride(d) != stride) return false;
    stride *= tensor.size(d);
  }
  return true;
}

Tensor with_dense_rows(const Tensor& tensor, int64_t dims) {
  return has_dense_rows(tensor, dims) ? tensor : tensor.contiguous();
}

// The rows of two operands, or of one that is given twice. They are copied where kernels do not
// support their strides.
Rows rows_of(const char* op, Tensor& input, Tensor& grad, int64_t dims) {
  const bool is_one = input.is_same(grad);
  input = with_dense_rows(input, dims);
  grad = is_one ? input : with_dense_rows(grad, dims);
  int64_t length = 1;
  for (int64_t d = input.dim() - dims; d < input.dim(); ++d) length *= input.size(d);
  const auto set = [&](Rows& rows) {
    c10::SmallVector<RowDim, 8> found;
    for (int64_t d = input.dim() - dims - 1; d >= 0; --d) {
      found.push_back({input.size(d), input.stride(d), grad.stride(d)});
    }
    return set_rows(rows, found.data(), static_cast<int>(found.size()), length);
  };
  Rows rows;
  if (!set(rows)) {
    input = input.contiguous();
    grad = is_one ? input : grad.contiguous();
    set(rows);
  }
  TORCH_CHECK(rows.count <= kMaxIndex32, op,
              ": input must have fewer than 2^31 rows: expected at most ", kMaxIndex32, ", got ",
              rows.count);
  return rows;
}

template <typename Op>
typename Op::Result normalize_rows(const Op& op) {
  const char* name = name_of<Op>();
  check(op);
  const TensorOption bias = bias_of(op), given_residual = residual_of(op);
  check_memory(name, {{"input", op.input},
                      {"residual", value_or_undefined(given_residual)},
                      {"weight", value_or_undefined(op.weight)},
                      {"bias", value_or_undefined(bias)}});
  const c10::cuda::CUDAGuard guard(op.input.device());
  at::DimVector sizes(op.input.sizes());
  const Tensor out = unfilled(sizes, op.input.options());
  const Tensor sum = kHasResidual<Op> ? unfilled(sizes, op.input.options()) : Tensor();
  std::fill(sizes.end() - op.dims, sizes.end(), 1);
  const auto options = op.input.options().dtype(compute_type(op.input));
  const Tensor rstd = unfilled(sizes, options),
               mean = Op::kIsRms ? Tensor() : unfilled(sizes, options);
  const auto results = results_of<Op>(out, mean, rstd, sum);
  if (rstd.numel() == 0) return results;
  if (out.numel() == 0) {
    if (mean.defined()) mean.zero_();
    rstd.fill_(std::numeric_limits<double>::quiet_NaN());
    return results;
  }
  Tensor input = op.input, residual = given_residual.value_or(op.input);
  const DenseParameters parameters(name, input, op.weight, bias);
  Forward problem;
  problem.rows = rows_of(name, input, residual, op.dims);
  problem.input = input.const_data_ptr();
  if (kHasResidual<Op>) problem.residual = residual.const_data_ptr();
  problem.sum = written(sum);
  problem.out = written(out);
  problem.mean = written(mean);
  problem.rstd = written(rstd);
  problem.affine = parameters.affine();
  problem.dtype = to_dtype(name, input.scalar_type());
  problem.eps = op.eps;
  problem.is_rms = Op::kIsRms;
  plan_and_launch(name, problem);
  return results;
}

template <typename Op>
typename Op::Result differentiate_rows(const Op& op) {
  const char* name = name_of<Op>();
  Tensor given_mean;
  if constexpr (!Op::kIsRms) given_mean = op.mean;
  check(op);
  check_memory(name, {{"grad", op.grad},
                      {"input", op.input},
                      {"weight", value_or_undefined(op.weight)},
                      {"sum_grad", value_or_undefined(op.sum_grad)},
                      {"mean", given_mean},
                      {"rstd", op.rstd}});
  const c10::cuda::CUDAGuard guard(op.input.device());
  const auto shape = op.input.sizes().slice(op.input.dim() - op.dims);
  const DenseParameters parameters(name, op.input, op.weight, std::nullopt);
  const auto of_weight = op.input.options().dtype(is_given(op.weight) ? op.weight->scalar_type()
                                                                      : op.input.scalar_type());
  const bool has_weight = op.mask[1], has_bias = !Op::kIsRms && op.mask.back();
  const Tensor input_grad = op.mask[0] ? unfilled(op.input.sizes(), op.input.options()) : Tensor();
  const Tensor weight_grad = has_weight ? unfilled(shape, of_weight) : Tensor();
  const Tensor bias_grad = has_bias ? unfilled(shape, of_weight) : Tensor();
  const auto results = gradients_of<Op>(input_grad, weight_grad, bias_grad);
  if (op.input.numel() == 0) {
    if (has_weight) weight_grad.zero_();
    if (has_bias) bias_grad.zero_();
    return results;
  }
  if (!op.mask[0] && !has_weight && !has_bias) return results;
  Tensor input = op.input, grad = op.grad;
  Backward problem;
  problem.rows = rows_of(name, input, grad, op.dims);
  const auto statistics = compute_type(input);
  const Tensor rstd = op.rstd.to(statistics).contiguous();
  const Tensor mean = given_mean.defined() ? given_mean.to(statistics).contiguous() : Tensor();
  const Tensor sum_grad = is_given(op.sum_grad) ? op.sum_grad->contiguous() : Tensor();
  problem.grad = grad.const_data_ptr();
  problem.input = input.const_data_ptr();
  problem.sum_grad = data_of(sum_grad);
  problem.mean = data_of(mean);
  problem.rstd = rstd.const_data_ptr();
  problem.input_grad = written(input_grad);
  problem.weight_grad = written(weight_grad);
  problem.bias_grad = written(bias_grad);
  problem.affine = parameters.affine();
  problem.dtype = to_dtype(name, input.scalar_type());
  plan_and_launch(name, problem);
  return results;
}

TORCH_LIBRARY_IMPL(gpuopt, CUDA, m) {
  RowsOps::for_each([&]<typename Op>() { impl<Op, normalize_rows<Op>>(m); });
  AddRowsOps::for_each([&]<typename Op>() { impl<Op, normalize_rows<Op>>(m); });
  GradientOps::for_each([&]<typename Op>() { impl<Op, differentiate_rows<Op>>(m); });
}

}  // namespace
}  // namespace gpuopt::norm
