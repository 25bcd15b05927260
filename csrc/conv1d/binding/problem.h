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

inline Problem make_problem(const char* op, at::ScalarType dtype, const Signal& from,
                            const Signal& to, const Weight& weight, const Sizes& sizes) {
  return {.from = from,
          .to = to,
          .weight = weight,
          .dtype = to_dtype(op, dtype),
          .batch = sizes.batch,
          .groups = sizes.groups,
          .taps = sizes.taps,
          .stride = sizes.stride,
          .padding = sizes.left,
          .dilation = sizes.dilation};
}

inline Problem forward_problem(const ForwardCall& call, const Sizes& sizes) {
  Problem problem =
      make_problem(call.op, call.input.scalar_type(), make_signal(call.input, sizes),
                   make_result(sizes.out_channels, sizes.out_size, sizes),
                   make_weight(call.weight.const_data_ptr(), call.weight.strides(), sizes), sizes);
  if (is_given(call.bias)) {
    problem.bias = call.bias->const_data_ptr();
    problem.bias_stride = call.bias->stride(0);
  }
  problem.activation = call.activation;
  return problem;
}

// Of the input or of the weight. Only the result has no memory yet.
inline Problem gradient_problem(const BackwardCall& call, const Sizes& sizes, Pass pass) {
  const at::Tensor& weight = call.weight;
  const bool of_input = pass == Pass::kInputGradient;
  const auto strides = result_strides(weight.size(1), weight.size(2), /*channels_last=*/false);
  return make_problem(kBackwardOp, weight.scalar_type(),
                      of_input ? make_result(sizes.in_channels, sizes.in_size, sizes)
                               : make_signal(call.input, sizes),
                      make_signal(call.grad_output, sizes),
                      of_input ? make_weight(weight.const_data_ptr(), weight.strides(), sizes)
                               : make_weight(/*data=*/nullptr, strides, sizes),
                      sizes);
}

}  // namespace gpuopt::conv1d
