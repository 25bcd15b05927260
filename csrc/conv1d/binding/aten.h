// The convolutions that fall back to ATen: all convolutions on the CPU, and those on CUDA for which
// no path is chosen.
#pragma once

#include "conv1d/binding/check.h"

namespace gpuopt::conv1d {

// Allocates the result of `pass` without writing it. A signal has the layout of `sizes`, and has a
// batch if the input has one.
Tensor empty_result(Pass pass, const Tensor& input, const Tensor& weight, const Sizes& sizes);

// Computes a checked forward call, below autograd.
Tensor aten_forward(const ForwardCall& call, const Sizes& sizes);

// Computes a checked backward call, below autograd: the gradients of input and weight that `mask`
// asks for.
Gradients aten_backward(const BackwardCall& call, const Sizes& sizes, Mask mask);

Tensor aten_grad_bias(const BackwardCall& call, const Sizes& sizes);

// Computes a checked backward call by other operators, which are differentiable and have batching
// rules: the activation's operand once more, its gradient, and the convolution's gradients.
Gradients backward_in_steps(const BackwardCall& call);

// Computes a checked call of causal_conv1d_update by other operators, which are differentiable and
// have batching rules.
Tensor update_by_convolution(const CausalConv1dUpdate& op);

}  // namespace gpuopt::conv1d
