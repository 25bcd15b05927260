// Derivatives of the convolutions, in reverse and forward mode. A convolution is linear in its
// input, its weight and its bias. Its backward is linear in the gradient too. So every derivative
// is made of these two operators, and higher derivatives follow. A transposed convolution is the
// input gradient of a convolution, and the gradients of one are made of the other.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <mutex>
#include <utility>
#include <vector>

#include "binding/grad_node.h"
#include "conv1d/binding/aten.h"
#include "reduce/binding/reduce_ops.h"

namespace gpuopt::conv1d {
namespace {

using namespace autograd_names;

Tensor sum_of(const Tensor& a, const Tensor& b) {
  if (!a.defined()) return b;
  return b.defined() ? at::add(a, b) : a;
}

// Without input channels, a result has no channels either, whatever weight and bias say.
bool has_no_channels(const Tensor& result) { return is_known_zero(result.sym_size(-2)); }

// ---------------------------------------------------------------- activations

// Whether an activation's derivative is computed from its result (relu) or from its operand.
bool derives_from_result(Activation activation) { return activation == Activation::kRelu; }

Tensor activation_tangent(const Tensor& tangent, const Tensor& from, Activation activation) {
  if (activation == Activation::kSilu) return tangent * silu_derivative(from);
  return activation_backward(tangent, from, activation);
}

// ---------------------------------------------------------------- convolution

// conv(dx, w) + conv(x, dw) + db. Undefined terms are left out. `result` is a tensor of the same
// shape.
Tensor product_rule(const Geometry& geometry, const Tensor& x, const Tensor& w, const Tensor& dx,
                    const Tensor& dw, const Tensor& db, const Tensor& result) {
  TensorOption bias = if_defined(db);
  Tensor by_input, by_weight;
  if (dx.defined()) by_input = geometry.convolve(dx, w, std::exchange(bias, std::nullopt));
  if (dw.defined()) by_weight = geometry.convolve(x, dw, std::exchange(bias, std::nullopt));
  if (bias.has_value()) {
    const Tensor zeros = at::zeros_like(result);
    return has_no_channels(result) ? zeros : at::add(zeros, bias->unsqueeze(-1));
  }
  return sum_of(by_input, by_weight);
}

class ConvolutionNode : public GradNode {
 public:
  template <typename... Inputs>
  explicit ConvolutionNode(const Geometry& geometry, const Inputs&... inputs)
      : GradNode(inputs...),
        stride_(geometry.stride.vec()),
        padding_(geometry.padding.vec()),
        dilation_(geometry.dilation.vec()),
        output_padding_(geometry.output_padding.vec()),
        groups_(geometry.groups),
        transposed_(geometry.transposed) {}

  void describe_state(NodeState& state) const override {
    state(stride_, padding_, dilation_, output_padding_, groups_, transposed_);
  }

 protected:
  Geometry geometry() const {
    return {stride_, padding_, dilation_, groups_, transposed_, output_padding_};
  }

 private:
  std::vector<SymInt> stride_, padding_, dilation_, output_padding_;
  SymInt groups_;
  bool transposed_;
};

Tensor sum_of_rows(const Tensor& grad) {
  return gpuopt::reduce_sum(grad, grad.dim() == 3 ? at::DimVector{0, 2} : at::DimVector{1});
}

// The gradients of a transposed convolution. A convolution takes grad to the gradient of the input.
Gradients transposed_gradients(const Geometry& of, const Tensor& grad, const Tensor& input,
                               const Tensor& weight, Mask mask) {
  // With output padding of whole strides, the convolution would have more positions than the input.
  // Its padding on the right becomes less, or the end of `grad`, which no tap meets, is cut off.
  const SymInt &stride = of.stride[0], &more = of.output_padding[0];
  std::array<SymInt, 2> ends{of.padding[0], of.padding[0] - (more - more % stride)};
  Tensor from = grad;
  if (is_known_below(ends[1], 0)) {
    from = grad.narrow_symint(-1, 0, grad.sym_size(-1) + ends[1]);
    ends[1] = 0;
  }
  const Geometry convolution{of.stride, ends, of.dilation, of.groups};
  Gradients gradients;
  auto& [grad_input, grad_weight, grad_bias] = gradients;
  if (mask[2]) grad_bias = sum_of_rows(grad);
  if (has_no_channels(grad)) {
    // A convolution without input channels would have no output channels either.
    const Tensor zero = at::sum(grad);
    if (mask[0]) grad_input = at::add(at::zeros_like(input), zero);
    if (mask[1]) grad_weight = at::add(at::zeros_like(weight), zero);
    return gradients;
  }
  // Gradients of complex numbers are linear in the conjugates of the operands. A weight gradient
  // has the conjugate of its second argument.
  if (mask[0]) grad_input = convolution.convolve(from, weight.conj(), std::nullopt);
  if (mask[1]) {
    grad_weight =
        std::get<1>(convolution.backward(input.conj(), from.conj(), weight, {false, true, false}));
  }
  return gradients;
}

// The node saves each tensor only if it is needed.
struct ForwardNode : ConvolutionNode {
  explicit ForwardNode(const ForwardCall& call)
      : ConvolutionNode(call.geometry, call.input, call.weight, call.bias),
        activation_(call.activation),
        out_channels_(call.weight.sym_size(0)) {
    const bool recomputes = activation_ != Activation::kNone && !derives_from_result(activation_);
    if (recomputes || next_edge(0).is_valid() || next_edge(1).is_valid()) {
      input_.save(call.input);
      weight_.save(call.weight);
    }
    if (recomputes && is_given(call.bias)) bias_.save(*call.bias);
  }
  std::string name() const override {
    return geometry().transposed ? "GpuoptConvTranspose1DBackward" : "GpuoptConv1DBackward";
  }
  void describe_state(NodeState& state) const override {
    ConvolutionNode::describe_state(state);
    state(activation_, out_channels_);
  }

  void save_result(const Tensor& result) {
    if (derives_from_result(activation_)) result_.save_result(result);
  }

  variable_list gradients(const Tensor& of_result) override {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    variable_list inputs(3);
    const Mask mask{task_should_compute_output(0), task_should_compute_output(1),
                    task_should_compute_output(2)};
    const Tensor input = input_.unpack(), weight = weight_.unpack();
    Tensor grad = of_result;
    if (geometry().transposed) {
      std::tie(inputs[0], inputs[1], inputs[2]) =
          transposed_gradients(geometry(), grad, input, weight, mask);
      return inputs;
    }
    Activation left = activation_;
    if (derives_from_result(left)) {
      grad = activation_backward(grad, result_.unpack(), left);
      left = Activation::kNone;
    }
    if (mask[0] || mask[1] || left != Activation::kNone) {
      // silu and gelu convolve once more to get their operand, instead of saving it.
      std::tie(inputs[0], inputs[1], inputs[2]) =
          geometry().backward(grad, input, weight, mask, if_defined(bias_.unpack()), left);
    } else if (mask[2]) {
      inputs[2] = grad_bias_of(grad);
    }
    return inputs;
  }

  static Tensor tangent(const ForwardCall& call, const Tensor& result) {
    const auto& [op, two_paddings, input, weight, bias, geometry, activation] = call;
    const Tensor x = primal_of(input), w = primal_of(weight), y = primal_of(result);
    const Tensor tangent = product_rule(geometry, x, w, tangent_of(input), tangent_of(weight),
                                        is_given(bias) ? tangent_of(*bias) : Tensor(), y);
    if (activation == Activation::kNone) return tangent;
    if (derives_from_result(activation)) return activation_tangent(tangent, y, activation);
    const auto offset = is_given(bias) ? TensorOption(primal_of(*bias)) : std::nullopt;
    return activation_tangent(tangent, geometry.convolve(x, w, offset), activation);
  }

 private:
  Tensor grad_bias_of(const Tensor& grad) const {
    if (has_no_channels(grad)) return at::sum(grad).expand_symint({out_channels_});  // 0
    return sum_of_rows(grad);
  }

  Activation activation_;
  SymInt out_channels_;
  Saved input_{this}, weight_{this}, bias_{this}, result_{this};
};

// ---------------------------------------------------------------- its backward

// g is the gradient of the output, x the input and w the weight. The backward computes Bx(g, w),
// Bw(g, x) and the sum of g, where Bx and Bw are adjoints of the convolution. Their gradients ggx,
// ggw and ggb give
//   gradient of g = conv(ggx, w) + conv(x, ggw) + ggb
//   gradient of x = Bx(g, ggw)
//   gradient of w = Bw(g, ggx)
struct BackwardNode : ConvolutionNode {
  explicit BackwardNode(const BackwardCall& call)
      : ConvolutionNode(call.geometry, call.grad_output, call.input, call.weight),
        grad_(this, call.grad_output),
        input_(this, call.input),
        weight_(this, call.weight) {}
  std::string name() const override { return "GpuoptConv1DBackwardBackward"; }

  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const Tensor &ggx = grads[0], &ggw = grads[1], &ggb = grads[2];
    const Tensor g = grad_.unpack(), x = input_.unpack(), w = weight_.unpack();
    variable_list inputs(3);
    if (task_should_compute_output(0)) {
      inputs[0] = product_rule(geometry(), x, w, ggx, ggw, ggb, g);
    }
    if (task_should_compute_output(1) && ggw.defined()) {
      inputs[1] = std::get<0>(geometry().backward(g, x, ggw, {true, false, false}));
    }
    if (task_should_compute_output(2) && ggx.defined()) {
      inputs[2] = std::get<1>(geometry().backward(g, ggx, w, {false, true, false}));
    }
    return inputs;
  }

 private:
  Saved grad_, input_, weight_;
};

// Without an activation, each gradient is linear in `grad_output`, and in `input` or `weight`.
Gradients backward_tangent(const BackwardCall& call) {
  const auto& [op, grad, input, weight, geometry, mask, bias, activation] = call;
  Gradients tangents;
  const Tensor x = primal_of(input), w = primal_of(weight);
  if (has_tangent(grad)) tangents = geometry.backward(tangent_of(grad), x, w, mask);
  const Mask others{mask[0] && has_tangent(weight), mask[1] && has_tangent(input), false};
  if (!others[0] && !others[1]) return tangents;
  const Gradients more = geometry.backward(primal_of(grad), others[1] ? tangent_of(input) : x,
                                           others[0] ? tangent_of(weight) : w, others);
  std::get<0>(tangents) = sum_of(std::get<0>(tangents), std::get<0>(more));
  std::get<1>(tangents) = sum_of(std::get<1>(tangents), std::get<1>(more));
  return tangents;
}

Gradients backward_autograd(const Conv1dBackward& op, DispatchKeySet keys) {
  const BackwardCall call = op;
  if (call.activation != Activation::kNone && (requires_grad(op) || has_tangents(op))) {
    check_backward(call);
    return backward_in_steps(call);
  }
  const Tensor &grad = op.grad_output, &input = op.input, &weight = op.weight;
  NodePtr<BackwardNode> node;
  if (compute_requires_grad(grad, input, weight)) node = make_node<BackwardNode>(call);
  const Gradients results = below_autograd(op, keys);
  const auto& [grad_input, grad_weight, grad_bias] = results;
  if (node) {
    for (const Tensor& result : {grad_input, grad_weight, grad_bias}) set_history(result, node);
  }
  if (has_tangent(grad) || has_tangent(input) || has_tangent(weight)) {
    const auto set = [](const Tensor& result, const Tensor& tangent) {
      if (tangent.defined()) set_tangent(result, tangent);
    };
    const auto [of_input, of_weight, of_bias] = backward_tangent(call);
    set(grad_input, of_input);
    set(grad_weight, of_weight);
    set(grad_bias, of_bias);
  }
  return results;
}

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  OpList<Conv1d, Conv1dAct, ConvTranspose1d>::for_each(
      [&]<typename Op>() { impl<Op, Grad<ForwardNode>>(m); });
  impl<Conv1dBackward, Autograd<backward_autograd>>(m);
}

}  // namespace
}  // namespace gpuopt::conv1d
