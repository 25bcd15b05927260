// Derivatives of upsampling in reverse and forward mode. The forward is linear and the backward is
// its adjoint. Each is the derivative of the other, so higher derivatives follow.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <vector>

#include "binding/grad_node.h"
#include "upsample/binding/upsample_ops.h"

namespace gpuopt::upsample {
namespace {

using namespace autograd_names;
using c10::SymIntArrayRef;
using Scale = std::optional<double>;

struct Nearest {
  static constexpr const char* kNode = "GpuoptUpsampleNearest2DBackward";
  static constexpr const char* kBackwardNode = "GpuoptUpsampleNearest2DBackwardBackward";
  static const auto& forward() { return ops::upsample_nearest2d(); }
  static const auto& backward() { return ops::upsample_nearest2d_backward(); }
};

struct Exact {
  static constexpr const char* kNode = "GpuoptUpsampleNearestExact2DBackward";
  static constexpr const char* kBackwardNode = "GpuoptUpsampleNearestExact2DBackwardBackward";
  static const auto& forward() { return ops::upsample_nearest_exact2d(); }
  static const auto& backward() { return ops::upsample_nearest_exact2d_backward(); }
};

// What a derivative needs. No tensor is saved.
struct Geometry {
  Geometry(SymIntArrayRef output, SymIntArrayRef input, Scale height, Scale width)
      : output_size(output.vec()), input_size(input.vec()), scales_h(height), scales_w(width) {}

  std::vector<c10::SymInt> output_size, input_size;
  Scale scales_h, scales_w;
};

// Node of the forward. It calls the backward.
template <typename Mode>
struct ForwardNode : torch::autograd::Node {
  explicit ForwardNode(Geometry geometry) : geometry_(std::move(geometry)) {}
  std::string name() const override { return Mode::kNode; }

  variable_list apply(variable_list&& grads) override {
    if (!grads[0].defined()) return {Tensor()};
    return {Mode::backward().call(grads[0], geometry_.output_size, geometry_.input_size,
                                  geometry_.scales_h, geometry_.scales_w)};
  }

 private:
  Geometry geometry_;
};

// Node of the backward. It calls the forward.
template <typename Mode>
struct BackwardNode : torch::autograd::Node {
  explicit BackwardNode(Geometry geometry) : geometry_(std::move(geometry)) {}
  std::string name() const override { return Mode::kBackwardNode; }

  variable_list apply(variable_list&& grads) override {
    if (!grads[0].defined()) return {Tensor()};
    return {Mode::forward().call(grads[0], geometry_.output_size, geometry_.scales_h,
                                 geometry_.scales_w)};
  }

 private:
  Geometry geometry_;
};

template <typename Mode>
Tensor forward_autograd(DispatchKeySet keys, const Tensor& self, SymIntArrayRef output_size,
                        Scale scales_h, Scale scales_w) {
  NodePtr<ForwardNode<Mode>> node;
  if (compute_requires_grad(self)) {
    node =
        make_node<ForwardNode<Mode>>(Geometry(output_size, self.sym_sizes(), scales_h, scales_w));
    node->set_next_edges(collect_next_edges(self));
  }
  Tensor result = below_autograd(Mode::forward(), keys, self, output_size, scales_h, scales_w);
  if (node) set_history(result, node);
  if (has_tangent(self)) {
    set_tangent(result, Mode::forward().call(tangent_of(self), output_size, scales_h, scales_w));
  }
  return result;
}

template <typename Mode>
Tensor backward_autograd(DispatchKeySet keys, const Tensor& grad_output, SymIntArrayRef output_size,
                         SymIntArrayRef input_size, Scale scales_h, Scale scales_w) {
  NodePtr<BackwardNode<Mode>> node;
  if (compute_requires_grad(grad_output)) {
    node = make_node<BackwardNode<Mode>>(Geometry(output_size, input_size, scales_h, scales_w));
    node->set_next_edges(collect_next_edges(grad_output));
  }
  Tensor result = below_autograd(Mode::backward(), keys, grad_output, output_size, input_size,
                                 scales_h, scales_w);
  if (node) set_history(result, node);
  if (has_tangent(grad_output)) {
    set_tangent(result, Mode::backward().call(tangent_of(grad_output), output_size, input_size,
                                              scales_h, scales_w));
  }
  return result;
}

TORCH_LIBRARY_IMPL(gpuopt, Autograd, m) {
  m.impl("upsample_nearest2d", forward_autograd<Nearest>);
  m.impl("upsample_nearest2d_backward", backward_autograd<Nearest>);
  m.impl("upsample_nearest_exact2d", forward_autograd<Exact>);
  m.impl("upsample_nearest_exact2d_backward", backward_autograd<Exact>);
}

}  // namespace
}  // namespace gpuopt::upsample
