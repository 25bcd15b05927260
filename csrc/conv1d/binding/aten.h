// The convolutions that ATen computes: all of the CPU's, and on CUDA those without a kernel here.
#pragma once

#include <array>
#include <tuple>

#include "conv1d/binding/check.h"

namespace gpuopt::conv1d {

using Mask = std::array<bool, 3>;
using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// A result that is not written yet, in the layout that `sizes` says; unbatched where input is.
at::Tensor empty_output(const at::Tensor& input, const Sizes& sizes);
at::Tensor empty_grad_input(const at::Tensor& input, const Sizes& sizes);

// Both of a checked call, below autograd; `op` is for messages.
at::Tensor aten_forward(const char* op, const at::Tensor& input, const at::Tensor& weight,
                        const OptionalTensor& bias, const Sizes& sizes, Activation activation);

// The gradients of input and weight that `mask` asks for.
Gradients aten_backward(const char* op, const at::Tensor& grad_output, const at::Tensor& input,
                        const at::Tensor& weight, const Sizes& sizes, Mask mask);

at::Tensor aten_grad_bias(const char* op, const at::Tensor& grad_output, const at::Tensor& weight,
                          const Sizes& sizes);

}  // namespace gpuopt::conv1d
