// The CUDA kernels of gpuopt::conv1d, conv1d_act, conv_transpose1d, conv1d_backward and
// causal_conv1d_update. A checked call becomes a Problem. The chosen path is launched, or ATen is
// called.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "binding/cuda_launch.h"
#include "binding/unfilled.h"
#include "conv1d/binding/aten.h"
#include "conv1d/binding/check_causal.h"
#include "conv1d/binding/launch.h"
#include "conv1d/binding/rows.h"
#include "reduce/binding/reduce_ops.h"

namespace gpuopt::conv1d {
namespace {

bool may_have_kernel(const Tensor& input, const Sizes& sizes) {
  return is_real_float(input.scalar_type()) && sizes.batch > 0 && sizes.in_channels > 0 &&
         sizes.out_channels > 0;
}

// Computes the result of `pass`. Returns an undefined tensor if ATen is chosen.
Tensor compute(const Plan& chosen, Pass pass, const auto& call, const Sizes& sizes) {
  if (chosen.is_aten()) return {};
  Tensor result = empty_result(pass, call.input, call.weight, sizes);
  launch_plan(call.op, chosen, result);
  return result;
}

void check_operands(const ForwardCall& call) {
  check_memory(
      call.op,
      {{"input", call.input}, {"weight", call.weight}, {"bias", value_or_undefined(call.bias)}});
}

// Returns an undefined tensor if ATen is chosen.
Tensor planned_forward(const ForwardCall& call, const Sizes& sizes) {
  if (!may_have_kernel(call.input, sizes)) return {};
  const Plan chosen = plan(forward_problem(call, sizes), forward_pass(sizes), current_device());
  if (!chosen.through_rows) return compute(chosen, Pass::kForward, call, sizes);
  const Tensor rows = in_rows(call.input, sizes);
  const ForwardCall of_rows{call.op,   call.two_paddings, rows,           call.weight,
                            call.bias, call.geometry,     call.activation};
  return from_rows(planned_forward(of_rows, sizes_of_rows(sizes)), sizes);
}

// Without `falls_back`, results for which ATen is chosen are undefined.
template <bool falls_back>
Tensor forward_cuda(const ForwardCall& call) {
  const Sizes sizes = concrete(check_forward(call));
  check_operands(call);
  const c10::cuda::CUDAGuard guard(call.input.device());
  const Tensor result = planned_forward(call, sizes);
  return falls_back && !result.defined() ? aten_forward(call, sizes) : result;
}

Tensor grad_bias_of(const BackwardCall& call, const Sizes& sizes) {
  if (call.grad_output.numel() == 0) return aten_grad_bias(call, sizes);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  at::AutoDispatchBelowAutograd no_grad;
  const at::DimVector dims = sizes.batched ? at::DimVector{0, 2} : at::DimVector{1};
  return gpuopt::reduce_sum(call.grad_output, dims, /*keepdim=*/false, call.weight.scalar_type());
}

void check_operands(const BackwardCall& call) {
  check_memory(call.op, {{"grad_output", call.grad_output},
                         {"input", call.input},
                         {"weight", call.weight},
                         {"bias", value_or_undefined(call.bias)}});
}

// All gradients by one kernel, if it supports them and other kernels would read operands twice.
std::optional<Gradients> fused_backward(const BackwardCall& call, const Sizes& sizes) {
  const bool is_linear = call.activation == Activation::kNone;
  if (!may_have_kernel(call.input, sizes) || (is_linear && !(call.mask[0] && call.mask[1]))) {
    return {};
  }
  Problem problem = forward_problem(call.forward(), sizes);
  problem.to = make_signal(call.grad_output, sizes);
  const auto fused = FusedPlan::make(problem, make_result(sizes.in_channels, sizes.in_size, sizes));
  if (!fused || (is_linear && !fused->has_vectors)) return {};
  Gradients result;
  auto& [grad_input, grad_weight, grad_bias] = result;
  if (call.mask[0]) {
    grad_input = empty_result(Pass::kInputGradient, call.input, call.weight, sizes);
  }
  if (call.mask[1]) {
    grad_weight = empty_result(Pass::kWeightGradient, call.input, call.weight, sizes);
  }
  if (call.mask[2]) grad_bias = unfilled({call.weight.size(0)}, call.weight.options());
  const auto data = [](const Tensor& tensor) {
    return tensor.defined() ? tensor.mutable_data_ptr() : nullptr;
  };
  TensorWorkspace workspace;
  check_launch(call.op,
               launch(*fused, problem.dtype, {data(grad_input), data(grad_weight), data(grad_bias)},
                      workspace, c10::cuda::getCurrentCUDAStream()));
  return result;
}

// The gradients of input and weight. A gradient for which ATen is chosen is undefined.
Gradients planned_backward(const BackwardCall& call, const Sizes& sizes) {
  if (!may_have_kernel(call.input, sizes)) return {};
  const Sizes row_sizes = sizes_of_rows(sizes);
  Tensor grad_rows;  // for both gradients
  const auto gradient_of = [&](Pass pass) {
    const Plan chosen = plan(gradient_problem(call, sizes, pass), pass, current_device());
    if (!chosen.through_rows) return compute(chosen, pass, call, sizes);
    const bool of_weight = pass == Pass::kWeightGradient;
    if (!grad_rows.defined()) grad_rows = in_rows(call.grad_output, sizes);
    const Tensor input = of_weight ? in_rows(call.input, sizes) : call.input;
    const BackwardCall of_rows{call.op,       grad_rows, input,     call.weight,
                               call.geometry, call.mask, call.bias, call.activation};
    const Tensor result =
        compute(plan(gradient_problem(of_rows, row_sizes, pass), pass, current_device()), pass,
                of_rows, row_sizes);
    return of_weight ? result : from_rows(result, sizes);
  };
  Gradients result;
  if (call.mask[0]) std::get<0>(result) = gradient_of(Pass::kInputGradient);
  if (call.mask[1]) std::get<1>(result) = gradient_of(Pass::kWeightGradient);
  return result;
}

// Without `falls_back`, the bias's gradient is computed if another one is.
template <bool falls_back>
Gradients backward_cuda(const BackwardCall& call) {
  const Sizes sizes = concrete(check_backward(call));
  check_operands(call);
  const c10::cuda::CUDAGuard guard(call.input.device());
  if (const auto fused = fused_backward(call, sizes)) return *fused;
  if (call.activation != Activation::kNone)
    return falls_back ? backward_in_steps(call) : Gradients();
  const Mask& mask = call.mask;
  Gradients result = planned_backward(call, sizes);
  auto& [grad_input, grad_weight, grad_bias] = result;
  if (falls_back) {
    const Mask left{mask[0] && !grad_input.defined(), mask[1] && !grad_weight.defined(), false};
    const Gradients others = aten_backward(call, sizes, left);
    if (left[0]) grad_input = std::get<0>(others);
    if (left[1]) grad_weight = std::get<1>(others);
  }
  if (mask[2] && (falls_back || grad_input.defined() || grad_weight.defined())) {
    grad_bias = grad_bias_of(call, sizes);
  }
  return result;
}

// ---------------------------------------------------------------- causal_conv1d_update

std::pair<const char*, const char*> memory_of(const Tensor& tensor) {
  int64_t last = 0;
  for (int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  const auto* begin = static_cast<const char*>(tensor.const_data_ptr());
  return {begin, begin + (last + 1) * tensor.element_size()};
}

// Returns a copy of a tensor that may overlap the state. Other threads would write to it before it
// is read.
Tensor apart_from(const Tensor& state, const Tensor& tensor) {
  if (tensor.numel() == 0 || state.numel() == 0) return tensor;
  const auto [begin, end] = memory_of(tensor);
  const auto [state_begin, state_end] = memory_of(state);
  return begin < state_end && state_begin < end ? tensor.clone() : tensor;
}

Tensor causal_conv1d_update_cuda(const CausalConv1dUpdate& op) {
  Tensor& state = op.state;
  const Activation known = check_update_in_place(op);
  check_memory(kUpdateOp, {{"input", op.input},
                           {"state", state},
                           {"weight", op.weight},
                           {"bias", value_or_undefined(op.bias)}});
  const c10::cuda::CUDAGuard guard(op.input.device());
  const Tensor input = apart_from(state, op.input), weight = apart_from(state, op.weight);
  TensorOption bias;
  if (is_given(op.bias)) bias = apart_from(state, *op.bias);
  if (!is_real_float(input.scalar_type())) {
    return update_by_convolution({input, state, weight, bias, op.activation});
  }
  const Tensor out = unfilled(input.sizes(), input.options());
  if (out.numel() == 0) return out;
  const UpdateProblem problem{.input = input.const_data_ptr(),
                              .input_batch_stride = input.stride(0),
                              .input_stride = input.stride(1),
                              .state = state.mutable_data_ptr(),
                              .state_batch_stride = state.stride(0),
                              .state_channel_stride = state.stride(1),
                              .state_stride = state.stride(2),
                              .weight = weight.const_data_ptr(),
                              .weight_stride = weight.stride(0),
                              .tap_stride = weight.stride(1),
                              .bias = bias.has_value() ? bias->const_data_ptr() : nullptr,
                              .bias_stride = bias.has_value() ? bias->stride(0) : 1,
                              .out = out.mutable_data_ptr(),
                              .dtype = to_dtype(kUpdateOp, input.scalar_type()),
                              .batch = input.size(0),
                              .channels = input.size(1),
                              .taps = weight.size(1),
                              .state_size = state.size(2),
                              .activation = known};
  check_launch(kUpdateOp, update(problem, c10::cuda::getCurrentCUDAStream()));
  return out;
}

TORCH_LIBRARY_IMPL(gpuopt, CUDA, m) {
  impl<Conv1d, forward_cuda<true>>(m);
  impl<Conv1dAct, forward_cuda<true>>(m);
  impl<ConvTranspose1d, forward_cuda<true>>(m);
  impl<Conv1dBackward, backward_cuda<true>>(m);
  impl<Conv1dByPath, forward_cuda<false>>(m);
  impl<ConvTranspose1dByPath, forward_cuda<false>>(m);
  impl<Conv1dBackwardByPath, backward_cuda<false>>(m);
  impl<CausalConv1dUpdate, causal_conv1d_update_cuda>(m);
}

}  // namespace
}  // namespace gpuopt::conv1d
