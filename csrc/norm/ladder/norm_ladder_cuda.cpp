// The CUDA kernels of gpuopt_ladder::layer_norm and layer_norm_backward.
#include "binding/ladder_cuda.h"
#include "common/index.h"
#include "norm/binding/norm_check.h"
#include "norm/ladder/norm_ladder.h"

namespace gpuopt::norm {
namespace {

using at::Tensor;
using Gradients = LayerNormGradients::Result;

// Checks an operand of rows.
void check_rows(const LadderCall& call, NamedTensor rows) {
  const auto& [name, tensor] = rows;
  TORCH_CHECK(tensor.dim() == 2, call.op(), ": ", name,
              " must be (rows, length): expected 2 dimensions, got shape ", tensor.sizes());
  call.check_operand(rows, {at::kFloat, at::kBFloat16});
  TORCH_CHECK(tensor.size(0) <= kMaxIndex32, call.op(), ": ", name,
              " must have fewer than 2^31 rows: expected at most ", kMaxIndex32, ", got ",
              tensor.size(0));
}
void check_factor(const LadderCall& call, NamedTensor factor, const Tensor& input) {
  check_parameter(call.op(), factor, input, input.sym_sizes().slice(1), "the length of rows");
  call.check_operand(factor, {input.scalar_type()});
}

Tensor forward_step(const LadderCall& call, const Tensor& input, const Tensor& weight,
                    const Tensor& bias) {
  check_rows(call, {"input", input});
  check_factor(call, {"weight", weight}, input);
  check_factor(call, {"bias", bias}, input);
  const Tensor out = at::empty_like(input);
  if (out.numel() == 0) return out;
  launch_step(
      call, ladder_forward, to_dtype(call.op(), input.scalar_type()),
      LadderForward<void>{input.const_data_ptr(), weight.const_data_ptr(), bias.const_data_ptr(),
                          out.mutable_data_ptr(), input.size(0), input.size(1)});
  return out;
}

Gradients backward_step(const LadderCall& call, const Tensor& grad, const Tensor& input,
                        const Tensor& mean, const Tensor& rstd, const Tensor& weight) {
  check_rows(call, {"grad", grad});
  check_rows(call, {"input", input});
  check_dtype_of(call.op(), {"input", input}, {"grad", grad});
  check_device_of(call.op(), {"input", input}, {"grad", grad});
  TORCH_CHECK(input.sizes() == grad.sizes(), call.op(),
              ": input must have the shape of grad: expected ", grad.sizes(), ", got ",
              input.sizes());
  check_factor(call, {"weight", weight}, input);
  for (const NamedTensor& statistic : {NamedTensor{"mean", mean}, NamedTensor{"rstd", rstd}}) {
    check_statistic(call.op(), statistic, input, 1);
    call.check_operand(statistic, {at::kFloat});
  }
  const Tensor input_grad = at::empty_like(input);
  if (input.numel() == 0) return {input_grad, at::zeros_like(weight), at::zeros_like(weight)};
  const Tensor weight_grad = at::empty_like(weight), bias_grad = at::empty_like(weight);
  launch_step(call, ladder_backward, to_dtype(call.op(), input.scalar_type()), sm_count(),
              LadderBackward<void>{grad.const_data_ptr(), input.const_data_ptr(),
                                   mean.const_data_ptr<float>(), rstd.const_data_ptr<float>(),
                                   weight.const_data_ptr(), input_grad.mutable_data_ptr(),
                                   weight_grad.mutable_data_ptr(), bias_grad.mutable_data_ptr(),
                                   input.size(0), input.size(1)});
  return {input_grad, weight_grad, bias_grad};
}

Tensor forward_production(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  return std::get<0>(call(LayerNormRows{input, weight, bias, 1, kLadderEps}));
}

Gradients backward_production(const Tensor& grad, const Tensor& input, const Tensor& mean,
                              const Tensor& rstd, const Tensor& weight) {
  constexpr std::array<bool, 3> kAll = {true, true, true};
  return call(
      LayerNormGradients{grad, input, mean, rstd, weight, 1, kLadderEps, kAll, std::nullopt});
}

TORCH_LIBRARY_IMPL(gpuopt_ladder, CUDA, m) {
  impl_ladder(m, "layer_norm", forward_production, forward_step);
  impl_ladder(m, "layer_norm_backward", backward_production, backward_step);
}

}  // namespace
}  // namespace gpuopt::norm
