// One position of a causal depthwise convolution: a thread per channel of each example.
#pragma once

#include "conv1d/device/rows.cuh"

namespace gpuopt::conv1d {

template <typename T>
__global__ void __launch_bounds__(kThreads)
    update_kernel(const __grid_constant__ UpdateProblem args) {
  using C = compute_t<T>;
  launch_dependents();
  grid_dependency_wait();
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= args.batch * args.channels) return;
  const int64_t image = index / args.channels, channel = index - image * args.channels;
  T* const state = static_cast<T*>(args.state) + image * args.state_batch_stride +
                   channel * args.state_channel_stride;
  const T* const weight = static_cast<const T*>(args.weight) + channel * args.weight_stride;
  const T input = static_cast<const T*>(
      args.input)[image * args.input_batch_stride + channel * args.input_stride];
  const int64_t old = args.state_size - args.taps + 1;  // older than the window
  C sum = {};
#pragma unroll 4
  for (int64_t i = 0; i < args.state_size; ++i) {
    const T value = state[i * args.state_stride];
    if (i > 0) state[(i - 1) * args.state_stride] = value;
    if (i >= old) {
      sum = multiply_add(to_compute(weight[(i - old) * args.tap_stride]), to_compute(value), sum);
    }
  }
  if (args.state_size > 0) state[(args.state_size - 1) * args.state_stride] = input;
  sum = multiply_add(to_compute(weight[(args.taps - 1) * args.tap_stride]), to_compute(input), sum);
  if (args.bias != nullptr) {
    sum += to_compute(static_cast<const T*>(args.bias)[channel * args.bias_stride]);
  }
  C result[1] = {sum};
  activate<T>(result, args.activation);
  static_cast<T*>(args.out)[index] = from_compute<T>(result[0]);
}

}  // namespace gpuopt::conv1d
