// Activations by name, and by ATen's differentiable operators.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "binding/grad_node.h"
#include "common/activation.h"

namespace gpuopt {

// In the order of Activation.
constexpr std::array<std::string_view, 4> kActivations{"none", "relu", "silu", "gelu"};

inline Activation to_activation(const char* op, std::string_view name) {
  const auto found = std::find(kActivations.begin(), kActivations.end(), name);
  TORCH_CHECK(found != kActivations.end(), op, ": activation must be known: expected 'none', ",
              "'relu', 'silu' or 'gelu', got '", name, "'");
  return static_cast<Activation>(found - kActivations.begin());
}

inline at::Tensor activated(const at::Tensor& values, Activation activation) {
  if (activation == Activation::kRelu) return at::relu(values);
  if (activation == Activation::kSilu) return at::silu(values);
  return activation == Activation::kGelu ? at::gelu(values) : values;
}

inline at::Tensor silu_derivative(const at::Tensor& from) {
  const at::Tensor sigmoid = at::sigmoid(from);
  return sigmoid * (1 + from * (1 - sigmoid));
}

// grad times the activation's derivative, or its conjugate for complex numbers. `from` is the
// activation's operand; for relu it may be the result. The result is differentiable.
inline at::Tensor activation_backward(const at::Tensor& grad, const at::Tensor& from,
                                      Activation activation) {
  if (activation == Activation::kNone) return grad;
  if (activation == Activation::kRelu) return at::threshold_backward(grad, from, 0);
  if (activation == Activation::kGelu) return at::gelu_backward(grad, from);
  // silu_backward has no derivative in either mode, and does not support complex numbers.
  const bool differentiable =
      at::GradMode::is_enabled() || has_tangent(grad) || has_tangent(from) || from.is_complex();
  if (!differentiable) return at::silu_backward(grad, from);
  return grad * silu_derivative(from).conj();
}

}  // namespace gpuopt
