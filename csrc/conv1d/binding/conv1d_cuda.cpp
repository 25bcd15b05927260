// The CUDA kernels of gpuopt::conv1d, conv1d_act, conv1d_backward and causal_conv1d_update: a
// checked call -> Problem -> launcher, or ATen where no kernel here serves the problem.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "binding/cuda_launch.h"
#include "binding/unfilled.h"
#include "conv1d/binding/aten.h"
#include "conv1d/binding/causal_conv1d.h"
#include "conv1d/binding/check.h"
#include "conv1d/binding/launch.h"
#include "reduce/reduce_ops.h"

namespace gpuopt::conv1d {
namespace {

using at::IntArrayRef;
using at::Tensor;

// The dtypes of the kernels here.
bool is_own_dtype(at::ScalarType dtype) {
  return dtype == at::kHalf || dtype == at::kBFloat16 || dtype == at::kFloat ||
         dtype == at::kDouble;
}

Plan plan_here(const Problem& problem, Pass pass) { return plan(problem, pass, this_device()); }

// ---------------------------------------------------------------- forward

Tensor forward_cuda(const char* op, const Tensor& input, const Tensor& weight,
                    const OptionalTensor& bias, const Sizes& sizes, Activation activation) {
  const c10::cuda::CUDAGuard guard(input.device());
  if (!is_own_dtype(input.scalar_type()) || sizes.batch == 0 || sizes.in_channels == 0) {
    return aten_forward(op, input, weight, bias, sizes, activation);
  }
  const Plan plan =
      plan_here(forward_problem(op, input, weight, bias, sizes, activation), Pass::kForward);
  if (plan.is_aten()) return aten_forward(op, input, weight, bias, sizes, activation);
  Tensor out = empty_output(input, sizes);
  launch_plan(op, plan, out);
  return out;
}

Tensor conv1d_cuda(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                   IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, int64_t groups) {
  constexpr const char* op = "gpuopt::conv1d";
  const Sizes sizes = check_forward(op, input, weight, bias, stride, padding, dilation, groups,
                                    /*two_paddings=*/false);
  return forward_cuda(op, input, weight, bias, sizes, Activation::kNone);
}

Tensor conv1d_act_cuda(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                       IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                       int64_t groups, std::string_view activation) {
  constexpr const char* op = "gpuopt::conv1d_act";
  const Sizes sizes = check_forward(op, input, weight, bias, stride, padding, dilation, groups,
                                    /*two_paddings=*/true);
  return forward_cuda(op, input, weight, bias, sizes, to_activation(op, activation));
}

// ---------------------------------------------------------------- backward

// The gradients that kernels here compute; undefined where none serves the problem.

Tensor own_grad_input(const char* op, const Tensor& grad_output, const Tensor& input,
                      const Tensor& weight, const Sizes& sizes) {
  const Plan plan =
      plan_here(input_gradient_problem(op, grad_output, weight, sizes), Pass::kInputGradient);
  if (plan.is_aten()) return {};
  Tensor grad_input = empty_grad_input(input, sizes);
  launch_plan(op, plan, grad_input);
  return grad_input;
}

Tensor own_grad_weight(const char* op, const Tensor& grad_output, const Tensor& input,
                       const Tensor& weight, const Sizes& sizes) {
  const Plan plan = plan_here(weight_gradient_problem(op, grad_output, input, weight, sizes),
                              Pass::kWeightGradient);
  if (plan.is_aten()) return {};
  Tensor grad_weight = unfilled(weight.sizes(), weight.options());
  launch_plan(op, plan, grad_weight);
  return grad_weight;
}

Tensor grad_bias_of(const char* op, const Tensor& grad_output, const Tensor& weight,
                    const Sizes& sizes) {
  if (grad_output.numel() == 0) return aten_grad_bias(op, grad_output, weight, sizes);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  at::AutoDispatchBelowAutograd no_grad;
  const at::DimVector dims = sizes.batched ? at::DimVector{0, 2} : at::DimVector{1};
  return gpuopt::reduce_sum(grad_output, dims, /*keepdim=*/false, weight.scalar_type());
}

Gradients conv1d_backward_cuda(const Tensor& grad_output, const Tensor& input, const Tensor& weight,
                               IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                               int64_t groups, Mask mask) {
  constexpr const char* op = "gpuopt::conv1d_backward";
  const Sizes sizes = check_backward(grad_output, input, weight, stride, padding, dilation, groups);
  const c10::cuda::CUDAGuard guard(input.device());
  Tensor grad_input, grad_weight, grad_bias;
  if (is_own_dtype(input.scalar_type()) && sizes.batch > 0 && sizes.in_channels > 0) {
    if (mask[0]) grad_input = own_grad_input(op, grad_output, input, weight, sizes);
    if (mask[1]) grad_weight = own_grad_weight(op, grad_output, input, weight, sizes);
  }
  const Mask left{mask[0] && !grad_input.defined(), mask[1] && !grad_weight.defined(), false};
  const Gradients others = aten_backward(op, grad_output, input, weight, sizes, left);
  if (left[0]) grad_input = std::get<0>(others);
  if (left[1]) grad_weight = std::get<1>(others);
  if (mask[2]) grad_bias = grad_bias_of(op, grad_output, weight, sizes);
  return {grad_input, grad_weight, grad_bias};
}

// ---------------------------------------------------------------- one step of a causal convolution

std::pair<const char*, const char*> memory_of(const Tensor& tensor) {
  int64_t last = 0;
  for (int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  const auto* begin = static_cast<const char*>(tensor.const_data_ptr());
  return {begin, begin + (last + 1) * tensor.element_size()};
}

// A copy of what may lie in the state's memory, where other lanes write before it is read.
Tensor apart_from(const Tensor& state, const Tensor& tensor) {
  if (tensor.numel() == 0 || state.numel() == 0) return tensor;
  const auto [begin, end] = memory_of(tensor);
  const auto [state_begin, state_end] = memory_of(state);
  return begin < state_end && state_begin < end ? tensor.clone() : tensor;
}

Tensor causal_conv1d_update_cuda(const Tensor& given_input, Tensor& state,
                                 const Tensor& given_weight, const OptionalTensor& given_bias,
                                 std::string_view activation) {
  constexpr const char* op = "gpuopt::causal_conv1d_update";
  check_update_in_place(given_input, state, given_weight, given_bias, activation);
  const c10::cuda::CUDAGuard guard(given_input.device());
  const Tensor input = apart_from(state, given_input), weight = apart_from(state, given_weight);
  OptionalTensor bias;
  if (given_bias.has_value() && given_bias->defined()) bias = apart_from(state, *given_bias);
  if (!is_own_dtype(input.scalar_type())) {
    return update_by_convolution(input, state, weight, bias, activation);
  }
  const Tensor out = unfilled(input.sizes(), input.options());
  if (out.numel() == 0) return out;
  UpdateProblem problem;
  problem.input = input.const_data_ptr();
  problem.input_batch_stride = input.stride(0);
  problem.input_stride = input.stride(1);
  problem.state = state.mutable_data_ptr();
  problem.state_batch_stride = state.stride(0);
  problem.state_channel_stride = state.stride(1);
  problem.state_stride = state.stride(2);
  problem.weight = weight.const_data_ptr();
  problem.weight_stride = weight.stride(0);
  problem.tap_stride = weight.stride(1);
  if (bias.has_value()) {
    problem.bias = bias->const_data_ptr();
    problem.bias_stride = bias->stride(0);
  }
  problem.out = out.mutable_data_ptr();
  problem.dtype = to_dtype(op, input.scalar_type());
  problem.batch = input.size(0);
  problem.channels = input.size(1);
  problem.taps = weight.size(1);
  problem.state_size = state.size(2);
  problem.activation = to_activation(op, activation);
  check_launch(op, update(problem, c10::cuda::getCurrentCUDAStream()));
  return out;
}

TORCH_LIBRARY_IMPL(gpuopt, CUDA, m) {
  m.impl("conv1d", conv1d_cuda);
  m.impl("conv1d_act", conv1d_act_cuda);
  m.impl("conv1d_backward", conv1d_backward_cuda);
  m.impl("causal_conv1d_update", causal_conv1d_update_cuda);
}

}  // namespace
}  // namespace gpuopt::conv1d
