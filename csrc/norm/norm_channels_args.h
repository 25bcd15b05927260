// What kernels of group and batch norm get: plain structs.
#pragma once

#include "common/dtype.h"
#include "norm/norm_args.h"
#include "norm/norm_channels_problem.h"

namespace gpuopt::norm {

// How threads read a tensor. The values of a plane, which is a channel of a sample, are dense. In
// channels-last layouts, a thread has some neighbouring channels of some rows. Words of masked
// planes may begin or end in a neighbouring plane.
enum class Walking : uint8_t { kPlanes, kMaskedPlanes, kColumns };

struct ChannelShape {
  FastDiv channels;
  uint32_t planes = 0;     // samples * channels
  int64_t length = 0;      // of a plane, or rows of a sample
  FastDiv group_channels;  // channels that share statistics
  uint32_t groups = 0;     // of a sample. 0 if samples share statistics
  // Where a group begins: so many values for each sample, and for each channel.
  int64_t sample_stride = 0, channel_stride = 1;

  GPUOPT_HOST_DEVICE uint32_t first_channel(uint32_t channel) const {
    return group_channels.div(channel) * group_channels.divisor;
  }
  GPUOPT_HOST_DEVICE int64_t group_begin(uint32_t sample, uint32_t first_channel) const {
    return sample * sample_stride + first_channel * channel_stride;
  }
};

// The tasks of a grid. A task is a part of a plane, or a tile of channels of some rows.
struct Tasks {
  FastDiv lanes;     // threads that are side by side: a power of two
  FastDiv parts;     // of a plane, or of the rows of a sample
  FastDiv tiles;     // of channels
  int64_t size = 0;  // of a part, in units or rows
  bool is_reversed = false;
};

// Where the statistics of groups are written, in the compute type.
struct StatisticsOut {
  void* mean = nullptr;
  void* rstd = nullptr;
  void* variance = nullptr;  // divided by one less than the number of values. May be null
  double eps = 0;
  RunningUpdate running;
};

// Statistics, of the compute type, or running ones.
struct Statistics {
  const void* mean = nullptr;
  const void* scale = nullptr;  // rstd, or the variance of running statistics
  DType dtype = DType::kFloat32;
  bool is_running = false;
  double eps = 0;
};

struct MeasureArgs {
  const void* input = nullptr;
  void* moments = nullptr;  // [rows][channels][3]: count, mean less a value of the group, and
                            // squared deviations
  ChannelShape shape;
  Tasks tasks;
};

struct MergeArgs {
  const void* input = nullptr;
  const void* parts = nullptr;  // moments, or [rows][2][channels] sums
  int64_t rows = 0;             // of a group
  FastDiv groups;               // of a sample, or all
  ChannelShape shape;
  int64_t count = 0;  // values of a group
  StatisticsOut statistics;
  void* means = nullptr;  // [groups][2]: of the scaled gradient, and of its product with the input
  Parameters parameters;
};

struct ApplyArgs {
  const void* input = nullptr;
  void* out = nullptr;
  Statistics statistics;
  void* mean = nullptr;  // the statistics that were used, if they are running ones
  void* rstd = nullptr;
  Parameters parameters;
  ChannelShape shape;
  Tasks tasks;
};

struct ChannelGradArgs {
  const void* grad = nullptr;
  const void* input = nullptr;
  const void* mean = nullptr;
  const void* rstd = nullptr;
  void* input_grad = nullptr;
  void* sums = nullptr;         // [rows][2][channels]: of grad * normal, and of grad
  const void* means = nullptr;  // [groups][2]. Null if statistics are given
  Parameters parameters;
  ChannelShape shape;
  Tasks tasks;
};

// A group that fits in the shared memory of a block. It has `planes` planes, which lie `stride`
// planes apart.
struct Staging {
  FastDiv lanes;
  uint32_t planes = 1, stride = 1;
  uint32_t first_stride = 1;  // planes from a group to the next one
  uint32_t words = 0;         // of a thread
  int64_t count = 0;          // values of a group
};

struct StagedForwardArgs {
  const void* input = nullptr;
  void* out = nullptr;
  StatisticsOut statistics;
  Parameters parameters;
  ChannelShape shape;
  Staging staging;
};

struct StagedBackwardArgs {
  ChannelGradArgs args;
  Staging staging;
};

}  // namespace gpuopt::norm
