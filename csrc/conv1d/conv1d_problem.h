// A convolution as the kernels' launchers take it: pointers, sizes and strides (in elements).
#pragma once

#include <cstdint>

#include "common/dtype.h"

namespace gpuopt::conv1d {

enum class Activation : uint8_t { kNone, kRelu, kSilu, kGelu };

// A signal (N, C, L).
struct Signal {
  void* data = nullptr;
  int64_t batch_stride = 0, channel_stride = 0, stride = 1;
  int64_t channels = 1;  // of a group
  int64_t size = 1;      // places of a row
};

struct Weight {
  void* data = nullptr;
  int64_t group_stride = 0, out_stride = 0, in_stride = 0, tap_stride = 1;
};

// All sizes are positive; dtype is one of the four real floating-point ones.
struct Problem {
  Signal from, to;  // the convolution's input and output
  Weight weight;
  const void* bias = nullptr;  // a value for each output channel; may be null
  int64_t bias_stride = 1;
  DType dtype = DType::kFloat32;
  int64_t batch = 1, groups = 1, taps = 1;
  int64_t step = 1;     // between the places where taps are laid: the convolution's stride
  int64_t padding = 0;  // before the first value; what comes after the last follows from sizes
  int64_t dilation = 1;
  Activation activation = Activation::kNone;
};

// out[n, c] = act(bias[c] + the sum over k of window[n, c, k] * weight[c, k]), where the window is
// the last taps - 1 values of the state, then the input. The state moves one place on and ends in
// the input.
struct UpdateProblem {
  const void* input = nullptr;
  int64_t input_batch_stride = 0, input_stride = 1;
  void* state = nullptr;
  int64_t state_batch_stride = 0, state_channel_stride = 0, state_stride = 1;
  const void* weight = nullptr;
  int64_t weight_stride = 0, tap_stride = 1;
  const void* bias = nullptr;  // may be null
  int64_t bias_stride = 1;
  void* out = nullptr;  // (batch, channels), contiguous
  DType dtype = DType::kFloat32;
  int64_t batch = 1, channels = 1;
  int64_t taps = 1, state_size = 0;  // state_size >= taps - 1
  Activation activation = Activation::kNone;
};

struct Device {
  int multiprocessors = 1;
  int shared_bytes = 227 << 10;  // that a block may have with asking: 64 KiB on sm_75
};

}  // namespace gpuopt::conv1d
