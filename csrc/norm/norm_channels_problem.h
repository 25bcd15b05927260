// Norms of (samples, channels, positions): group, instance and batch norm. Plain host C++.
#pragma once

#include "norm/norm_problem.h"

namespace gpuopt::norm {

// A dense tensor. A group is what is normalised together: neighbouring channels of a sample, or one
// channel of all samples.
struct Channels {
  int64_t samples = 1, channels = 1, positions = 1;
  int64_t groups = 1;             // of the channels
  bool is_over_samples = false;   // batch norm, whose groups have one channel each
  bool is_channels_last = false;  // [samples, positions, channels]

  int64_t group_channels() const { return channels / groups; }
  int64_t statistics() const { return is_over_samples ? groups : samples * groups; }
  int64_t values() const { return samples * channels * positions; }
};

// What a forward pass may be given in place of finding it.
struct RunningStatistics {
  const void* mean = nullptr;      // [channels]
  const void* variance = nullptr;  // [channels]
  DType dtype = DType::kFloat32;   // of both
};

// Running statistics that change: running = (1 - momentum) * running + momentum * found.
struct RunningUpdate {
  void* mean = nullptr;      // [statistics]. May be null
  void* variance = nullptr;  // [statistics]
  DType dtype = DType::kFloat32;
  double momentum = 0;
};

struct ChannelForward {
  const void* input = nullptr;
  void* out = nullptr;       // laid out as the input
  void* mean = nullptr;      // [statistics], float32 or float64
  void* rstd = nullptr;      // [statistics]
  void* variance = nullptr;  // [statistics]: divided by one less than the count. May be null
  RunningStatistics given;
  RunningUpdate running;
  Affine affine;  // of each channel
  Channels shape;
  DType dtype = DType::kFloat32;
  double eps = 0;
};

struct ChannelBackward {
  const void* grad = nullptr;  // laid out as the input
  const void* input = nullptr;
  const void* mean = nullptr;
  const void* rstd = nullptr;
  void* input_grad = nullptr;   // may be null
  void* weight_grad = nullptr;  // [channels], of the dtype of `affine`. May be null
  void* bias_grad = nullptr;    // [channels]. May be null
  bool is_given = false;        // the statistics do not depend on the input
  Affine affine;
  Channels shape;
  DType dtype = DType::kFloat32;
};

}  // namespace gpuopt::norm
