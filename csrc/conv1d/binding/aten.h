// The convolutions that ATen computes: all of them on the CPU, and on CUDA those without a kernel
// here.
#pragma once

#include "conv1d/binding/check.h"

namespace gpuopt::conv1d {

// What `pass` computes, not written yet. A signal has the layout that `sizes` says, and no batch
// where input has none.
Tensor empty_result(Pass pass, const Tensor& input, const Tensor& weight, const Sizes& sizes);

// Both compute a checked call, below autograd.
Tensor aten_forward(const ForwardCall& call, const Sizes& sizes);

// The gradients of input and weight that `mask` asks for.
Gradients aten_backward(const BackwardCall& call, const Sizes& sizes, Mask mask);

Tensor aten_grad_bias(const BackwardCall& call, const Sizes& sizes);

// What a checked call of causal_conv1d_update does, by operators that are differentiable and have
// batching rules.
Tensor update_by_convolution(const Tensor& input, Tensor& state, const Tensor& weight,
                             const OptionalTensor& bias, Activation activation);

}  // namespace gpuopt::conv1d
