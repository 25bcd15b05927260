// Launches of group and batch norm: plain host C++, tested without a GPU.
//
// A group that fits in the shared memory of a block is read once, in one launch. Otherwise one
// launch measures parts of groups, a second one merges them, and a third one reads the tensor
// again.
#pragma once

#include "norm/norm_channels_args.h"
#include "norm/norm_channels_problem.h"
#include "norm/norm_plan.h"

namespace gpuopt::norm {

constexpr int kLogWalkThreads = 8, kWalkThreads = 1 << kLogWalkThreads;
constexpr int kWalkWords = 4;        // of a thread in flight, and in a short plane
constexpr int kPlaneWords = 16;      // of a thread in a part of a plane, at most
constexpr int kColumnRowsLeast = 8;  // of a thread
constexpr int kWalkBlocks = 8;       // of an SM, where columns are split
constexpr int kMostMergeThreads = 256;
constexpr int kMostStagedThreads = 512;
constexpr int64_t kMostStagedBytes = 192 << 10;
// Groups of up to so many bytes are read by one block each, however few there are.
constexpr int64_t kSmallGroupBytes = 32 << 10;

template <typename Args>
struct WalkPlan {
  Args args;
  LaunchShape shape;
};

struct MergePlan {
  MergeArgs args;
  LaunchShape shape;
  size_t parts_bytes = 0;
};

struct ChannelForwardPlan {
  DType dtype = DType::kFloat32;
  bool is_wide_access = false;  // words of 16 bytes, or values
  Walking walking = Walking::kPlanes;
  bool is_activated = false;
  std::optional<WalkPlan<StagedForwardArgs>> staged;
  std::optional<WalkPlan<MeasureArgs>> measure;
  std::optional<MergePlan> merge;
  std::optional<WalkPlan<ApplyArgs>> apply;
};

struct ChannelBackwardPlan {
  DType dtype = DType::kFloat32;
  bool is_wide_access = false;
  Walking walking = Walking::kPlanes;
  bool is_activated = false;
  size_t sums_bytes = 0, means_bytes = 0;
  std::optional<WalkPlan<StagedBackwardArgs>> staged;
  std::optional<WalkPlan<ChannelGradArgs>> sums;
  std::optional<MergePlan> merge;
  std::optional<WalkPlan<ChannelGradArgs>> apply;
  std::optional<FinishPlan> finish;
};

namespace detail {

// How a tensor is read.
struct Reading {
  Walking walking = Walking::kPlanes;
  int64_t values = 1;  // of a word
  ChannelShape shape;
  int64_t samples = 1;  // whose rows are split: 1 if columns go over all samples
};

inline Reading reading_of(const Channels& shape, DType dtype, const Affine& affine,
                          std::initializer_list<const void*> operands) {
  Reading reading;
  const auto size = static_cast<int64_t>(size_of(dtype)), values = kAccessBytes / size;
  bool is_wide = size < 8 && shape.values() % values == 0;
  for (const void* operand : operands) is_wide = is_wide && is_aligned(operand, kAccessBytes);
  const bool is_columns = shape.is_channels_last || shape.positions == 1;
  if (is_columns) {
    is_wide = is_wide && shape.channels % values == 0 && is_aligned(affine.weight, kAccessBytes) &&
              is_aligned(affine.bias, kAccessBytes);
    reading.walking = Walking::kColumns;
  } else if (is_wide && shape.positions % values != 0) {
    reading.walking = Walking::kMaskedPlanes;
  }
  if (is_wide) reading.values = values;
  const bool is_merged = is_columns && shape.is_over_samples;
  reading.samples = is_merged ? 1 : shape.samples;
  ChannelShape& args = reading.shape;
  args.channels = divide_by(shape.channels);
  args.planes = static_cast<uint32_t>(shape.samples * shape.channels);
  args.length = is_merged ? shape.positions * shape.samples : shape.positions;
  args.group_channels = divide_by(shape.group_channels());
  args.groups = shape.is_over_samples ? 0 : static_cast<uint32_t>(shape.groups);
  args.sample_stride = shape.is_over_samples ? 0 : shape.channels * shape.positions;
  args.channel_stride = is_columns ? 1 : shape.positions;
  return reading;
}

// Words of a plane, at most.
inline int64_t plane_words(const Reading& reading) {
  const int64_t others = reading.walking == Walking::kMaskedPlanes ? reading.values - 1 : 0;
  return ceil_div(reading.shape.length + others, reading.values);
}

inline Tasks tasks_of(const Reading& reading, const Device& device, LaunchShape& launch) {
  Tasks tasks;
  const ChannelShape& shape = reading.shape;
  if (reading.walking == Walking::kColumns) {
    const int64_t units = shape.channels.divisor / reading.values;
    const int64_t lanes = std::min<int64_t>(kWarp, pow2_ceil(units));
    const int64_t tiles = ceil_div(units, lanes), teams = kWalkThreads / lanes;
    const int64_t wanted = ceil_div<int64_t>(kWalkBlocks * device.sms, tiles * reading.samples);
    const int64_t most = ceil_div<int64_t>(shape.length, teams * kColumnRowsLeast);
    tasks.size = ceil_div(shape.length, std::clamp<int64_t>(wanted, 1, most));
    tasks.parts = divide_by(ceil_div(shape.length, tasks.size));
    tasks.lanes = divide_by(lanes);
    tasks.tiles = divide_by(tiles);
    launch = shape_of(tiles * tasks.parts.divisor * reading.samples, kWalkThreads);
    return tasks;
  }
  const int64_t words = plane_words(reading);
  const int64_t lanes =
      std::min<int64_t>(kWalkThreads, pow2_ceil(ceil_div<int64_t>(words, kWalkWords)));
  tasks.size = ceil_div(words, ceil_div<int64_t>(words, lanes * kPlaneWords));
  tasks.parts = divide_by(ceil_div(words, tasks.size));
  tasks.lanes = divide_by(lanes);
  launch =
      shape_of(ceil_div<int64_t>(int64_t{shape.planes} * tasks.parts.divisor, kWalkThreads / lanes),
               kWalkThreads);
  return tasks;
}

// Rows of partial results, of all groups and of one.
inline int64_t partial_rows(const Reading& reading, const Tasks& tasks) {
  return reading.samples * tasks.parts.divisor;
}

inline MergePlan plan_merge(const Channels& shape, const Reading& reading, const Tasks& tasks) {
  MergePlan plan;
  MergeArgs& args = plan.args;
  args.rows = tasks.parts.divisor * (shape.is_over_samples ? reading.samples : 1);
  args.groups = divide_by(shape.groups);
  args.shape = reading.shape;
  args.count = shape.values() / shape.statistics();
  const int64_t entries = args.rows * shape.group_channels();
  plan.shape = shape_of(
      shape.statistics(),
      std::clamp<int64_t>(pow2_ceil(ceil_div<int64_t>(entries, 4)), kWarp, kMostMergeThreads));
  return plan;
}

// One launch for groups that fit in shared memory, each with so many operands.
inline std::optional<Staging> stage(const Channels& shape, const Reading& reading, DType dtype,
                                    int operands, const Device& device, LaunchShape& launch) {
  if (reading.walking == Walking::kColumns) return std::nullopt;
  const int64_t planes = shape.is_over_samples ? shape.samples : shape.group_channels();
  const int64_t words = plane_words(reading);
  const int64_t word_bytes = reading.values * static_cast<int64_t>(size_of(dtype));
  const int64_t most = std::min<int64_t>(kMostStagedBytes, device.shared_bytes - kSharedReserve);
  if (planes > most || words > most || planes * words * word_bytes * operands > most) {
    return std::nullopt;
  }
  const int64_t threads = std::clamp<int64_t>(pow2_ceil(ceil_div<int64_t>(planes * words, 8)),
                                              kWarp, kMostStagedThreads);
  int64_t lanes = std::min(threads, pow2_ceil(ceil_div<int64_t>(words, kWalkWords)));
  // Threads that have no plane of their own share the planes that there are.
  while (lanes < threads && threads / lanes > planes) lanes *= 2;
  Staging staging;
  staging.lanes = divide_by(lanes);
  staging.planes = static_cast<uint32_t>(planes);
  staging.stride = shape.is_over_samples ? static_cast<uint32_t>(shape.channels) : 1;
  staging.first_stride = shape.is_over_samples ? 1 : staging.planes;
  staging.words = static_cast<uint32_t>(ceil_div(planes, threads / lanes) * ceil_div(words, lanes));
  staging.count = planes * shape.positions;
  const int64_t bytes = staging.words * threads * word_bytes * operands;
  if (bytes > most) return std::nullopt;
  if (shape.statistics() < device.sms / 2 && bytes > kSmallGroupBytes) return std::nullopt;
  launch = shape_of(shape.statistics(), threads);
  launch.shared_bytes = static_cast<size_t>(bytes);
  return staging;
}

}  // namespace detail

inline ChannelForwardPlan plan(const ChannelForward& problem, const Device& device) {
  ChannelForwardPlan plan;
  const Channels& shape = problem.shape;
  const detail::Reading reading =
      detail::reading_of(shape, problem.dtype, problem.affine, {problem.input, problem.out});
  plan.dtype = problem.dtype;
  plan.is_wide_access = reading.values > 1;
  plan.walking = reading.walking;
  plan.is_activated = problem.affine.activation != Activation::kNone;
  const Parameters parameters = detail::parameters_of(problem.affine, problem.dtype);
  const StatisticsOut statistics{problem.mean, problem.rstd, problem.variance, problem.eps,
                                 problem.running};
  const bool is_running = problem.given.mean != nullptr;
  LaunchShape launch;
  if (!is_running) {
    if (const auto staging = detail::stage(shape, reading, problem.dtype, 1, device, launch)) {
      plan.staged = {{problem.input, problem.out, statistics, parameters, reading.shape, *staging},
                     launch};
      return plan;
    }
  }
  Tasks tasks = detail::tasks_of(reading, device, launch);
  if (!is_running) {
    plan.measure = {{problem.input, nullptr, reading.shape, tasks}, launch};
    plan.merge = detail::plan_merge(shape, reading, tasks);
    plan.merge->args.input = problem.input;
    plan.merge->args.statistics = statistics;
    plan.merge->parts_bytes =
        static_cast<size_t>(detail::partial_rows(reading, tasks) * shape.channels * 3) *
        detail::compute_bytes(problem.dtype);
  }
  // What was read last is still in the L2 cache.
  tasks.is_reversed = true;
  ApplyArgs args{problem.input, problem.out};
  args.parameters = parameters;
  args.shape = reading.shape;
  args.tasks = tasks;
  if (is_running) {
    args.statistics = {problem.given.mean, problem.given.variance, problem.given.dtype, true,
                       problem.eps};
    args.mean = problem.mean;
    args.rstd = problem.rstd;
  } else {
    args.statistics = {problem.mean, problem.rstd};
  }
  plan.apply = {args, launch};
  return plan;
}

inline ChannelBackwardPlan plan(const ChannelBackward& problem, const Device& device) {
  ChannelBackwardPlan plan;
  const Channels& shape = problem.shape;
  const detail::Reading reading = detail::reading_of(
      shape, problem.dtype, problem.affine, {problem.grad, problem.input, problem.input_grad});
  plan.dtype = problem.dtype;
  plan.is_wide_access = reading.values > 1;
  plan.walking = reading.walking;
  plan.is_activated = problem.affine.activation != Activation::kNone;
  const bool has_sums = problem.weight_grad != nullptr || problem.bias_grad != nullptr;
  const bool needs_means = problem.input_grad != nullptr && !problem.is_given;
  ChannelGradArgs args{problem.grad, problem.input, problem.mean, problem.rstd, problem.input_grad};
  args.parameters = detail::parameters_of(problem.affine, problem.dtype);
  args.shape = reading.shape;
  LaunchShape launch;
  int64_t rows = shape.samples;
  const auto staging =
      needs_means ? detail::stage(shape, reading, problem.dtype, 2, device, launch) : std::nullopt;
  if (staging) {
    plan.staged = {{args, *staging}, launch};
  } else {
    args.tasks = detail::tasks_of(reading, device, launch);
    rows = detail::partial_rows(reading, args.tasks);
    if (needs_means || has_sums) plan.sums = {args, launch};
    if (needs_means) {
      plan.merge = detail::plan_merge(shape, reading, args.tasks);
      plan.merge->args.parameters = args.parameters;
      plan.means_bytes =
          static_cast<size_t>(shape.statistics() * 2) * detail::compute_bytes(problem.dtype);
    }
    args.tasks.is_reversed = true;
    if (problem.input_grad != nullptr) plan.apply = {args, launch};
  }
  if (plan.sums || has_sums) {
    plan.sums_bytes =
        static_cast<size_t>(rows * 2 * shape.channels) * detail::compute_bytes(problem.dtype);
  }
  if (has_sums) {
    plan.finish = detail::plan_finish(
        {{nullptr, {problem.weight_grad, problem.bias_grad}, rows, shape.channels},
         problem.affine.dtype,
         {},
         plan.sums_bytes});
  }
  return plan;
}

}  // namespace gpuopt::norm
