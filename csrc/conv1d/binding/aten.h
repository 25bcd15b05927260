// The convolutions that ATen computes: all of them on the CPU, and on CUDA those without a kernel
// here.
#pragma once

#include "conv1d/binding/check.h"

namespace gpuopt::conv1d {

// What `pass` computes, not written yet. A signal has the layout that `sizes` says, and no batch
// where input has none.
at::Tensor empty_result(Pass pass, const at::Tensor& input, const at::Tensor& weight,
                        const Sizes& sizes);

// Both compute a checked call, below autograd.
at::Tensor aten_forward(const ForwardCall& call, const Sizes& sizes);

// The gradients of input and weight that `mask` asks for.
Gradients aten_backward(const BackwardCall& call, const Sizes& sizes, Mask mask);

at::Tensor aten_grad_bias(const BackwardCall& call, const Sizes& sizes);

}  // namespace gpuopt::conv1d
