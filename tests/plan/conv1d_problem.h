// A convolution from plain numbers, for the C entry points that tests call.
#pragma once

#include "conv1d/conv1d_plan.h"

namespace gpuopt::conv1d {

struct GivenSignal {
  int64_t data, batch_stride, channel_stride, stride, channels, size;
};

struct Given {
  GivenSignal from, to;
  int64_t weight, group_stride, out_stride, in_stride, tap_stride;
  int64_t bias, bias_stride;
  int64_t dtype, batch, groups, taps, step, padding, dilation, activation;
};

inline Signal make_signal(const GivenSignal& given) {
  return {reinterpret_cast<void*>(given.data),
          given.batch_stride,
          given.channel_stride,
          given.stride,
          given.channels,
          given.size};
}

inline Problem make_problem(const Given& given) {
  Problem problem;
  problem.from = make_signal(given.from);
  problem.to = make_signal(given.to);
  problem.weight = {reinterpret_cast<void*>(given.weight), given.group_stride, given.out_stride,
                    given.in_stride, given.tap_stride};
  problem.bias = reinterpret_cast<const void*>(given.bias);
  problem.bias_stride = given.bias_stride;
  problem.dtype = static_cast<DType>(given.dtype);
  problem.batch = given.batch;
  problem.groups = given.groups;
  problem.taps = given.taps;
  problem.step = given.step;
  problem.padding = given.padding;
  problem.dilation = given.dilation;
  problem.activation = static_cast<Activation>(given.activation);
  return problem;
}

// As the tests number them.
inline int64_t number_of(Path path) {
  switch (path) {
    case Path::kLibrary:
      return 0;
    case Path::kRows:
      return 1;
    case Path::kFan:
      return 2;
    case Path::kColumns:
      return 3;
    case Path::kValues:
      return 4;
    case Path::kChunks:
      return 5;
    case Path::kFanGradients:
      return 6;
    default:
      return 7;  // kGemm
  }
}

}  // namespace gpuopt::conv1d
