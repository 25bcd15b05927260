// Makes a Problem of tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include "binding/dtypes.h"
#include "conv1d/binding/check.h"
#include "conv1d/problem.h"

namespace gpuopt::conv1d {

// The Signal of an operand (N, C, L) or (C, L). It counts the channels of one group.
inline Signal make_signal(const Tensor& tensor, const Sizes& sizes) {
  return {.data = tensor.const_data_ptr(),
          .batch_stride = sizes.batched ? tensor.stride(0) : 0,
          .channel_stride = tensor.stride(-2),
          .stride = tensor.stride(-1),
          .channels = tensor.size(-2) / sizes.groups,
          .size = tensor.size(-1)};
}

// The Signal of the result. It has no memory yet, because ATen may compute it.
inline Signal make_result(int64_t channels, int64_t size, const Sizes& sizes) {
  const auto strides = result_strides(channels, size, sizes.channels_last);
  return {.batch_stride = sizes.batched ? strides[0] : 0,
          .channel_stride = strides[1],
          .stride = strides[2],
          .channels = channels / sizes.groups,
          .size = size};
}

// `rows` is the size of a weight's first dimension.
inline Weight make_weight(const void* data, int64_t rows, at::IntArrayRef strides,
                          const Sizes& sizes) {
  return {.data = data,
          .group_stride = rows / sizes.groups * strides[0],
          .out_stride = strides[0],
          .in_stride = strides[1],
          .tap_stride = strides[2]};
}

inline Problem make_problem(const auto& call, const Signal& from, const Signal& to,
                            const Weight& weight, const Sizes& sizes) {
  return {.from = from,
          .to = to,
          .weight = weight,
          .dtype = to_dtype(call.op, call.weight.scalar_type()),
          .batch = sizes.batch,
          .groups = sizes.groups,
          .taps = sizes.taps,
          .stride = sizes.stride,
          .padding = sizes.left,
          .dilation = sizes.dilation};
}

// The problem of a forward call. A transposed convolution is an input gradient, see forward_pass().
inline Problem forward_problem(const ForwardCall& call, const Sizes& sizes) {
  const Tensor& weight = call.weight;
  Signal from = make_signal(call.input, sizes);
  Signal to = make_result(sizes.out_channels, sizes.out_size, sizes);
  if (sizes.transposed) std::swap(from, to);
  Problem problem = make_problem(
      call, from, to, make_weight(weight.const_data_ptr(), weight.size(0), weight.strides(), sizes),
      sizes);
  if (is_given(call.bias)) {
    problem.bias = call.bias->const_data_ptr();
    problem.bias_stride = call.bias->stride(0);
  }
  problem.activation = call.activation;
  return problem;
}

inline Pass forward_pass(const Sizes& sizes) {
  return sizes.transposed ? Pass::kInputGradient : Pass::kForward;
}

// The problem of the input gradient or of the weight gradient. The result has no memory yet.
inline Problem gradient_problem(const BackwardCall& call, const Sizes& sizes, Pass pass) {
  const Tensor& weight = call.weight;
  const bool of_input = pass == Pass::kInputGradient;
  const auto strides = result_strides(weight.size(1), weight.size(2), /*channels_last=*/false);
  return make_problem(
      call,
      of_input ? make_result(sizes.in_channels, sizes.in_size, sizes)
               : make_signal(call.input, sizes),
      make_signal(call.grad_output, sizes),
      of_input ? make_weight(weight.const_data_ptr(), weight.size(0), weight.strides(), sizes)
               : make_weight(/*data=*/nullptr, weight.size(0), strides, sizes),
      sizes);
}

}  // namespace gpuopt::conv1d
