// A convolution: operands, sizes, and strides of tensors in elements. Plain host C++.
#pragma once

#include <cstdint>
#include <utility>

#include "common/activation.h"
#include "common/device.h"
#include "common/dtype.h"

namespace gpuopt::conv1d {

enum class Pass : uint8_t { kForward, kInputGradient, kWeightGradient };

// A signal of shape [N, C, L].
struct Signal {
  const void* data = nullptr;  // null for the result, whose memory is aligned
  int64_t batch_stride = 0, channel_stride = 0, stride = 1;  // strides of the tensor
  int64_t channels = 1;                                      // per group
  int64_t size = 1;                                          // positions in a row
};

struct Weight {  // [groups, output channels, input channels, taps]
  const void* data = nullptr;
  int64_t group_stride = 0, out_stride = 0, in_stride = 0, tap_stride = 1;
};

// The forward pass computes
//   to[n, o, i] = act(bias[o] + sum over c, k of
//                     from[n, c, i * stride - padding + k * dilation] * weight[o, c, k])
// where c runs over the channels of o's group. Values outside `from` are 0. All sizes are positive.
// The dtype is one of the four real floating-point types. Arguments of kernels call the
// convolution's stride `step`, because `from_stride` and the like are strides of tensors.
//
// The input gradient reads `to`, the gradient of the output, and writes `from`. It is also the
// transposed convolution of `to`, so it adds a bias, which then has a value for each channel of
// `from`. The weight gradient writes a contiguous weight. Gradients have no activation.
struct Problem {
  Signal from, to;
  Weight weight;
  const void* bias = nullptr;  // of each channel of the result, may be null
  int64_t bias_stride = 1;
  DType dtype = DType::kFloat32;
  int64_t batch = 1, groups = 1, taps = 1;
  int64_t stride = 1;  // of the convolution
  // Zeros before the first value. The padding behind the last value follows from the sizes.
  int64_t padding = 0;
  int64_t dilation = 1;
  Activation activation = Activation::kNone;
};

// One position of a causal convolution: out[n, c] = act(bias[c] + sum over k of window[n, c, k] *
// weight[c, k]). The window is the last taps - 1 values of the state, then the input. The state
// shifts by one position, and the input becomes its last value.
struct UpdateProblem {
  const void* input = nullptr;
  int64_t input_batch_stride = 0, input_stride = 1;
  void* state = nullptr;
  int64_t state_batch_stride = 0, state_channel_stride = 0, state_stride = 1;
  const void* weight = nullptr;
  int64_t weight_stride = 0, tap_stride = 1;
  const void* bias = nullptr;  // may be null
  int64_t bias_stride = 1;
  void* out = nullptr;  // [batch, channels], contiguous
  DType dtype = DType::kFloat32;
  int64_t batch = 1, channels = 1;
  int64_t taps = 1, state_size = 0;  // state_size >= taps - 1
  Activation activation = Activation::kNone;
};

// Larger problems are split into several launches, since threads are counted with 31 bits.
constexpr int64_t kLaunchOutputs = (int64_t{1} << 31) - 1024;

// Swaps input and output, so that an input gradient reads `from` and writes `to`.
inline Problem exchanged(const Problem& p) {
  Problem result = p;
  std::swap(result.from, result.to);
  std::swap(result.weight.out_stride, result.weight.in_stride);
  return result;
}

// The input gradient of a convolution of stride 1, as a convolution of stride 1 with reversed taps.
inline Problem transposed(const Problem& p) {
  Problem result = exchanged(p);
  const auto item = static_cast<int64_t>(size_of(p.dtype));
  result.stride = 1;
  result.padding = (p.taps - 1) * p.dilation - p.padding;
  result.weight.data =
      static_cast<const char*>(p.weight.data) + (p.taps - 1) * p.weight.tap_stride * item;
  result.weight.tap_stride = -p.weight.tap_stride;
  return result;
}

}  // namespace gpuopt::conv1d
