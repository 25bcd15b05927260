// Tensors -> Problem.
#pragma once

#include <ATen/core/Tensor.h>

#include "binding/dtypes.h"
#include "conv1d/binding/check.h"
#include "conv1d/problem.h"

namespace gpuopt::conv1d {

// What is read: (N, C, L) or (C, L), of which `groups` each have as many channels.
inline Signal make_signal(const at::Tensor& tensor, const Sizes& sizes) {
  Signal signal;
  signal.data = tensor.const_data_ptr();
  signal.batch_stride = sizes.batched ? tensor.stride(0) : 0;
  signal.channel_stride = tensor.stride(-2);
  signal.stride = tensor.stride(-1);
  signal.channels = tensor.size(-2) / sizes.groups;
  signal.size = tensor.size(-1);
  return signal;
}

// The result, which has no memory yet, as ATen may be who computes it.
inline Signal make_result(int64_t channels, int64_t size, const Sizes& sizes) {
  const auto strides = result_strides(channels, size, sizes.channels_last);
  Signal signal;
  signal.batch_stride = sizes.batched ? strides[0] : 0;
  signal.channel_stride = strides[1];
  signal.stride = strides[2];
  signal.channels = channels / sizes.groups;
  signal.size = size;
  return signal;
}

inline Weight make_weight(const void* data, at::IntArrayRef strides, const Sizes& sizes) {
  Weight weight;
  weight.data = data;
  weight.group_stride = sizes.out_channels / sizes.groups * strides[0];
  weight.out_stride = strides[0];
  weight.in_stride = strides[1];
  weight.tap_stride = strides[2];
  return weight;
}

inline Weight make_weight(const at::Tensor& tensor, const Sizes& sizes) {
  return make_weight(tensor.const_data_ptr(), tensor.strides(), sizes);
}

inline Problem make_problem(const char* op, at::ScalarType dtype, const Signal& from,
                            const Signal& to, const Weight& weight, const Sizes& sizes) {
  Problem problem;
  problem.from = from;
  problem.to = to;
  problem.weight = weight;
  problem.dtype = to_dtype(op, dtype);
  problem.batch = sizes.batch;
  problem.groups = sizes.groups;
  problem.taps = sizes.taps;
  problem.stride = sizes.stride;
  problem.padding = sizes.left;
  problem.dilation = sizes.dilation;
  return problem;
}

inline Problem forward_problem(const char* op, const at::Tensor& input, const at::Tensor& weight,
                               const OptionalTensor& bias, const Sizes& sizes,
                               Activation activation) {
  Problem problem = make_problem(op, input.scalar_type(), make_signal(input, sizes),
                                 make_result(sizes.out_channels, sizes.out_size, sizes),
                                 make_weight(weight, sizes), sizes);
  if (bias.has_value() && bias->defined()) {
    problem.bias = bias->const_data_ptr();
    problem.bias_stride = bias->stride(0);
  }
  problem.activation = activation;
  return problem;
}

inline Problem input_gradient_problem(const char* op, const at::Tensor& grad_output,
                                      const at::Tensor& weight, const Sizes& sizes) {
  return make_problem(op, weight.scalar_type(),
                      make_result(sizes.in_channels, sizes.in_size, sizes),
                      make_signal(grad_output, sizes), make_weight(weight, sizes), sizes);
}

inline Problem weight_gradient_problem(const char* op, const at::Tensor& grad_output,
                                       const at::Tensor& input, const at::Tensor& weight,
                                       const Sizes& sizes) {
  const auto strides = result_strides(weight.size(1), weight.size(2), /*channels_last=*/false);
  return make_problem(op, input.scalar_type(), make_signal(input, sizes),
                      make_signal(grad_output, sizes),
                      make_weight(/*data=*/nullptr, strides, sizes), sizes);
}

}  // namespace gpuopt::conv1d
