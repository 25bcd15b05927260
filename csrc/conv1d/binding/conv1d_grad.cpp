// Derivatives of the convolutions: reverse and forward mode. A convolution is linear in its input,
// in its weight and in its bias, and its backward in the gradient too: every derivative is made of
// these two operators, so higher ones follow.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <mutex>
#include <vector>

#include "binding/grad_node.h"
#include "conv1d/binding/check.h"
#include "conv1d/binding/ops.h"
#include "reduce/reduce_ops.h"

namespace gpuopt::conv1d {
namespace {

using at::Tensor;
using c10::DispatchKeySet;
using c10::SymInt;
using c10::SymIntArrayRef;
using torch::autograd::collect_next_edges;
using torch::autograd::compute_requires_grad;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
using Mask = std::array<bool, 3>;
using Gradients = std::tuple<Tensor, Tensor, Tensor>;

// How taps are laid.
struct Geometry {
  Geometry(SymIntArrayRef stride_, SymIntArrayRef padding_, SymIntArrayRef dilation_,
           SymInt groups_)
      : stride(stride_.vec()),
        padding(padding_.vec()),
        dilation(dilation_.vec()),
        groups(std::move(groups_)) {}

  Tensor convolve(const Tensor& input, const Tensor& weight, const OptionalTensor& bias) const {
    return ops::conv1d_act().call(input, weight, bias, stride, padding, dilation, groups, "none");
  }
  Gradients backward(const Tensor& grad, const Tensor& input, const Tensor& weight,
                     Mask mask) const {
    return ops::conv1d_backward().call(grad, input, weight, stride, padding, dilation, groups,
                                       mask);
  }

  std::vector<SymInt> stride, padding, dilation;
  SymInt groups;
};

Tensor sum_of(const Tensor& a, const Tensor& b) {
  if (!a.defined()) return b;
  return b.defined() ? at::add(a, b) : a;
}

bool is_given(const OptionalTensor& tensor) { return tensor.has_value() && tensor->defined(); }

// A result of no input channels has none either, whatever weight and bias say.
bool has_no_channels(const Tensor& result) { return is_known_zero(result.sym_size(-2)); }

// ---------------------------------------------------------------- activations

// What an activation's derivative is computed from: relu's result, else what it was applied to.
bool derives_from_result(Activation activation) { return activation == Activation::kRelu; }

Tensor silu_derivative(const Tensor& from) {
  const Tensor sigmoid = at::sigmoid(from);
  return sigmoid * (1 + from * (1 - sigmoid));
}

// grad times the derivative, which is differentiable itself; of complex numbers its conjugate.
Tensor activation_backward(const Tensor& grad, const Tensor& from, Activation activation) {
  switch (activation) {
    case Activation::kNone:
      return grad;
    case Activation::kRelu:
      return at::threshold_backward(grad, from, 0);
    case Activation::kGelu:
      return at::gelu_backward(grad, from);
    case Activation::kSilu:
      break;
  }
  // silu_backward has no derivative of its own, in no mode, and is not for complex numbers.
  const bool differentiable =
      at::GradMode::is_enabled() || has_tangent(grad) || has_tangent(from) || from.is_complex();
  if (!differentiable) return at::silu_backward(grad, from);
  return grad * silu_derivative(from).conj();
}

Tensor activation_tangent(const Tensor& tangent, const Tensor& from, Activation activation) {
  if (activation == Activation::kSilu) return tangent * silu_derivative(from);
  return activation_backward(tangent, from, activation);
}

// ---------------------------------------------------------------- convolution

struct Conv1dBackward : torch::autograd::Node {
  Conv1dBackward(Geometry geometry, Activation activation)
      : geometry_(std::move(geometry)), activation_(activation) {}
  std::string name() const override { return "GpuoptConv1DBackward"; }

  void save(const Tensor& input, const Tensor& weight, const OptionalTensor& bias) {
    out_channels_ = weight.sym_size(0);
    const bool recomputes = activation_ != Activation::kNone && !derives_from_result(activation_);
    if (recomputes || next_edge(0).is_valid() || next_edge(1).is_valid()) {
      input_ = SavedVariable(input, /*is_output=*/false);
      weight_ = SavedVariable(weight, /*is_output=*/false);
    }
    if (recomputes && is_given(bias)) bias_ = SavedVariable(*bias, /*is_output=*/false);
  }

  void save_result(const Tensor& result) {
    if (derives_from_result(activation_)) result_ = SavedVariable(result, /*is_output=*/true);
  }

  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    variable_list inputs(3);
    if (!grads[0].defined()) return inputs;
    const Mask mask{task_should_compute_output(0), task_should_compute_output(1),
                    task_should_compute_output(2)};
    const Tensor input = input_.unpack(), weight = weight_.unpack();
    const Tensor grad = before_activation(grads[0], input, weight);
    if (mask[0] || mask[1]) {
      std::tie(inputs[0], inputs[1], inputs[2]) = geometry_.backward(grad, input, weight, mask);
    } else if (mask[2]) {
      inputs[2] = grad_bias_of(grad);
    }
    return inputs;
  }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (SavedVariable* saved : {&input_, &weight_, &bias_, &result_}) saved->reset_data();
  }

 private:
  Tensor grad_bias_of(const Tensor& grad) const {
    if (has_no_channels(grad)) return at::sum(grad).expand_symint({out_channels_});  // 0
    return grad.dim() == 3 ? gpuopt::reduce_sum(grad, at::IntArrayRef{0, 2})
                           : gpuopt::reduce_sum(grad, at::IntArrayRef{1});
  }

  // Convolves once more where the derivative isn't known from the result: what this takes in time
  // it saves in memory.
  Tensor before_activation(const Tensor& grad, const Tensor& input, const Tensor& weight) {
    if (activation_ == Activation::kNone) return grad;
    if (derives_from_result(activation_)) {
      return activation_backward(grad, result_.unpack(pointer_to(this)), activation_);
    }
    const Tensor bias = bias_.unpack();
    return activation_backward(
        grad,
        geometry_.convolve(input, weight, bias.defined() ? OptionalTensor(bias) : std::nullopt),
        activation_);
  }

  Geometry geometry_;
  Activation activation_;
  SymInt out_channels_;
  SavedVariable input_, weight_, bias_, result_;
};

// The tangent of a convolution: the product rule, of those tangents that exist.
Tensor convolution_tangent(const Geometry& geometry, const Tensor& result, const Tensor& input,
                           const Tensor& weight, const OptionalTensor& bias) {
  OptionalTensor of_bias;
  if (is_given(bias) && has_tangent(*bias)) of_bias = tangent_of(*bias);
  Tensor by_input, by_weight;
  if (has_tangent(input)) {
    by_input = geometry.convolve(tangent_of(input), primal_of(weight), of_bias);
    of_bias.reset();
  }
  if (has_tangent(weight)) {
    by_weight = geometry.convolve(primal_of(input), tangent_of(weight), of_bias);
    of_bias.reset();
  }
  if (of_bias.has_value()) {
    const Tensor zeros = at::zeros_like(result);
    return has_no_channels(result) ? zeros : at::add(zeros, of_bias->unsqueeze(-1));
  }
  return sum_of(by_input, by_weight);
}

bool has_tangents(const Tensor& input, const Tensor& weight, const OptionalTensor& bias) {
  return has_tangent(input) || has_tangent(weight) || (is_given(bias) && has_tangent(*bias));
}

void set_tangent(const Tensor& result, const Geometry& geometry, Activation activation,
                 const Tensor& input, const Tensor& weight, const OptionalTensor& bias) {
  Tensor tangent = convolution_tangent(geometry, primal_of(result), input, weight, bias);
  if (activation != Activation::kNone) {
    const auto offset = is_given(bias) ? OptionalTensor(primal_of(*bias)) : std::nullopt;
    const Tensor from = derives_from_result(activation)
                            ? primal_of(result)
                            : geometry.convolve(primal_of(input), primal_of(weight), offset);
    tangent = activation_tangent(tangent, from, activation);
  }
  result._set_fw_grad(tangent, /*level=*/0, /*is_inplace_op=*/false);
}

// compute() is the operator below autograd.
template <typename Compute>
Tensor forward_autograd(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                        const Geometry& geometry, Activation activation, Compute compute) {
  NodePtr<Conv1dBackward> node;
  if (compute_requires_grad(input, weight, bias)) {
    node = make_node<Conv1dBackward>(geometry, activation);
    node->set_next_edges(collect_next_edges(input, weight, bias));
    node->save(input, weight, bias);
  }
  Tensor result;
  {
    at::AutoDispatchBelowADInplaceOrView guard;
    result = compute();
  }
  if (node) {
    set_history(result, node);
    node->save_result(result);
  }
  if (has_tangents(input, weight, bias)) {
    set_tangent(result, geometry, activation, input, weight, bias);
  }
  return result;
}

Tensor conv1d_autograd(DispatchKeySet keys, const Tensor& input, const Tensor& weight,
                       const OptionalTensor& bias, SymIntArrayRef stride, SymIntArrayRef padding,
                       SymIntArrayRef dilation, SymInt groups) {
  return forward_autograd(
      input, weight, bias, Geometry(stride, padding, dilation, groups), Activation::kNone, [&] {
        return ops::conv1d().redispatch(keys & c10::after_autograd_keyset, input, weight, bias,
                                        stride, padding, dilation, groups);
      });
}

Tensor conv1d_act_autograd(DispatchKeySet keys, const Tensor& input, const Tensor& weight,
                           const OptionalTensor& bias, SymIntArrayRef stride,
                           SymIntArrayRef padding, SymIntArrayRef dilation, SymInt groups,
                           std::string_view activation) {
  return forward_autograd(input, weight, bias, Geometry(stride, padding, dilation, groups),
                          to_activation("gpuopt::conv1d_act", activation), [&] {
                            return ops::conv1d_act().redispatch(
                                keys & c10::after_autograd_keyset, input, weight, bias, stride,
                                padding, dilation, groups, activation);
                          });
}

// ---------------------------------------------------------------- its backward

// With B the adjoints, g the gradient of the output, x the input and w the weight, the backward's
// results are Bx(g, w), Bw(g, x) and the sum of g. Whatever gradients these are given (as ggx, ggw
// and ggb), g's is conv(ggx, w) + conv(x, ggw) + ggb, x's is Bx(g, ggw), and w's is Bw(g, ggx).
struct Conv1dBackwardBackward : torch::autograd::Node {
  explicit Conv1dBackwardBackward(Geometry geometry) : geometry_(std::move(geometry)) {}
  std::string name() const override { return "GpuoptConv1DBackwardBackward"; }

  void save(const Tensor& grad, const Tensor& input, const Tensor& weight) {
    grad_ = SavedVariable(grad, /*is_output=*/false);
    input_ = SavedVariable(input, /*is_output=*/false);
    weight_ = SavedVariable(weight, /*is_output=*/false);
  }

  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const Tensor &for_input = grads[0], &for_weight = grads[1], &for_bias = grads[2];
    const Tensor grad = grad_.unpack(), input = input_.unpack(), weight = weight_.unpack();
    variable_list inputs(3);
    if (task_should_compute_output(0)) {
      inputs[0] = of_grad(grad, input, weight, for_input, for_weight, for_bias);
    }
    if (task_should_compute_output(1) && for_weight.defined()) {
      inputs[1] = std::get<0>(geometry_.backward(grad, input, for_weight, {true, false, false}));
    }
    if (task_should_compute_output(2) && for_input.defined()) {
      inputs[2] = std::get<1>(geometry_.backward(grad, for_input, weight, {false, true, false}));
    }
    return inputs;
  }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (SavedVariable* saved : {&grad_, &input_, &weight_}) saved->reset_data();
  }

 private:
  Tensor of_grad(const Tensor& grad, const Tensor& input, const Tensor& weight,
                 const Tensor& for_input, const Tensor& for_weight, const Tensor& for_bias) const {
    OptionalTensor bias;
    if (for_bias.defined()) bias = for_bias;
    Tensor by_input, by_weight;
    if (for_input.defined()) {
      by_input = geometry_.convolve(for_input, weight, bias);
      bias.reset();
    }
    if (for_weight.defined()) {
      by_weight = geometry_.convolve(input, for_weight, bias);
      bias.reset();
    }
    if (bias.has_value()) {
      return has_no_channels(grad) ? at::zeros_like(grad)
                                   : bias->unsqueeze(-1).expand_symint(grad.sym_sizes());
    }
    return sum_of(by_input, by_weight);
  }

  Geometry geometry_;
  SavedVariable grad_, input_, weight_;
};

Gradients sums_of(const Gradients& a, const Gradients& b) {
  return {sum_of(std::get<0>(a), std::get<0>(b)), sum_of(std::get<1>(a), std::get<1>(b)),
          sum_of(std::get<2>(a), std::get<2>(b))};
}

// Each gradient is linear in `grad` and in one of the others.
Gradients backward_tangent(const Geometry& geometry, const Tensor& grad, const Tensor& input,
                           const Tensor& weight, Mask mask) {
  Gradients tangents;
  const Tensor x = primal_of(input), w = primal_of(weight);
  if (has_tangent(grad)) tangents = geometry.backward(tangent_of(grad), x, w, mask);
  const Mask others{mask[0] && has_tangent(weight), mask[1] && has_tangent(input), false};
  if (!others[0] && !others[1]) return tangents;
  const Tensor of_input = others[1] ? tangent_of(input) : x;
  const Tensor of_weight = others[0] ? tangent_of(weight) : w;
  return sums_of(tangents, geometry.backward(primal_of(grad), of_input, of_weight, others));
}

Gradients conv1d_backward_autograd(DispatchKeySet keys, const Tensor& grad_output,
                                   const Tensor& input, const Tensor& weight, SymIntArrayRef stride,
                                   SymIntArrayRef padding, SymIntArrayRef dilation, SymInt groups,
                                   Mask mask) {
  const Geometry geometry(stride, padding, dilation, groups);
  NodePtr<Conv1dBackwardBackward> node;
  if (compute_requires_grad(grad_output, input, weight)) {
    node = make_node<Conv1dBackwardBackward>(geometry);
    node->set_next_edges(collect_next_edges(grad_output, input, weight));
    node->save(grad_output, input, weight);
  }
  Gradients results;
  {
    at::AutoDispatchBelowADInplaceOrView guard;
    results =
        ops::conv1d_backward().redispatch(keys & c10::after_autograd_keyset, grad_output, input,
                                          weight, stride, padding, dilation, groups, mask);
  }
  auto& [grad_input, grad_weight, grad_bias] = results;
  if (node) {
    for (const Tensor& result : {grad_input, grad_weight, grad_bias}) set_history(result, node);
  }
  if (has_tangent(grad_output) || has_tangent(input) || has_tangent(weight)) {
    const auto tangents = backward_tangent(geometry, grad_output, input, weight, mask);
    const auto set = [](const Tensor& result, const Tensor& tangent) {
      if (!tangent.defined()) return;
      result._set_fw_grad(tangent, /*level=*/0, /*is_inplace_op=*/false);
    };
    set(grad_input, std::get<0>(tangents));
    set(grad_weight, std::get<1>(tangents));
    set(grad_bias, std::get<2>(tangents));
  }
  return results;
}

TORCH_LIBRARY_IMPL(gpuopt, Autograd, m) {
  m.impl("conv1d", conv1d_autograd);
  m.impl("conv1d_act", conv1d_act_autograd);
  m.impl("conv1d_backward", conv1d_backward_autograd);
}

}  // namespace
}  // namespace gpuopt::conv1d
