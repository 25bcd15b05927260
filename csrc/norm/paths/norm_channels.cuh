// Group and batch norm in three launches: parts of groups are measured, merged, and read again.
#pragma once

#include "common/activation.cuh"
#include "common/launch.cuh"
#include "norm/device/norm_walk.cuh"

namespace gpuopt::norm {

// Words of the walk from `from` on. What is behind its end is 0.
template <typename Walk, typename T, int kValues>
__device__ __forceinline__ void load_words(const Walk& walk, const T* data, int64_t from,
                                           Vec<T, kValues> (&words)[kWalkWords]) {
#pragma unroll
  for (int k = 0; k < kWalkWords; ++k) {
    words[k] =
        load_unit<T, kValues>(data + walk.first + (from + k) * walk.step, from + k < walk.count);
  }
}

template <typename T, int kValues, Walking kWalking>
__global__ void __launch_bounds__(kWalkThreads)
    measure_channels(const __grid_constant__ MeasureArgs args) {
  using C = compute_t<T>;
  using ThreadWalk = Walk<T, kValues, kWalking>;
  using Moments = ChannelMoments<C, ThreadWalk::kChannels>;
  __shared__ Moments shared[ThreadWalk::kIsColumns ? kWalkThreads : kWalkThreads / 32];
  const ThreadWalk walk(args.shape, args.tasks);
  const T* input = static_cast<const T*>(args.input);
  grid_dependency_wait();
  launch_next();
  // The first value of each group is subtracted first: a mean far from 0 would be rounded to more
  // than the deviations.
  C shift[ThreadWalk::kChannels] = {};
  if (walk.count > 0) {
#pragma unroll
    for (int c = 0; c < ThreadWalk::kChannels; ++c) {
      const uint32_t first = args.shape.first_channel(walk.channel + c);
      shift[c] = to_compute(input[args.shape.group_begin(walk.sample, first)]);
    }
  }
  Moments moments;
  for (int64_t from = 0; from < walk.count; from += kWalkWords) {
    Vec<T, kValues> words[kWalkWords];
    load_words(walk, input, from, words);
    Moments found;
    typename ThreadWalk::Part parts[kWalkWords] = {{0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}};
#pragma unroll
    for (int k = 0; k < kWalkWords; ++k) {
      if (from + k >= walk.count) break;
      parts[k] = walk.word(walk.first + (from + k) * walk.step);
      found.count += static_cast<C>(ThreadWalk::kIsColumns ? 1 : parts[k].count());
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        const int c = ThreadWalk::sum_of_value(i);
        found.mean[c] += parts[k].has(i) ? to_compute(words[k].values[i]) - shift[c] : C{0};
      }
    }
    const C share = 1 / found.count;
#pragma unroll
    for (int c = 0; c < ThreadWalk::kChannels; ++c) found.mean[c] *= share;
#pragma unroll
    for (int k = 0; k < kWalkWords; ++k) {
      if (from + k >= walk.count) break;
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        const int c = ThreadWalk::sum_of_value(i);
        const C deviation = to_compute(words[k].values[i]) - shift[c] - found.mean[c];
        if (parts[k].has(i))
          found.squares[c] = multiply_add(deviation, deviation, found.squares[c]);
      }
    }
    moments.add(found);
  }
  walk.combine(moments, shared);
  if (!walk.is_leader(args.shape)) return;
  const int64_t channels = args.shape.channels.divisor;
  C* to = static_cast<C*>(args.moments) + 3 * (walk.row * channels + walk.channel);
#pragma unroll
  for (int c = 0; c < ThreadWalk::kChannels; ++c) {
    to[3 * c] = moments.count;
    to[3 * c + 1] = moments.mean[c];
    to[3 * c + 2] = moments.squares[c];
  }
}

// The parts of a group, in a fixed order: calls f(row, channel) for every part that this thread
// adds.
template <typename F>
__device__ __forceinline__ void for_each_part(const MergeArgs& args, F&& f) {
  uint32_t sample = blockIdx.x;
  const FastDiv& channels = args.shape.group_channels;
  const uint32_t channel = args.groups.divmod(sample) * channels.divisor;
  const int64_t first_row = sample * args.rows;
  const auto parts = static_cast<uint32_t>(args.rows * channels.divisor);
  for (uint32_t part = threadIdx.x; part < parts; part += blockDim.x) {
    // Neighbouring threads have neighbouring channels.
    const uint32_t row = channels.div(part);
    f(first_row + row, channel + (part - row * channels.divisor));
  }
}

// From the mean and the squared deviations of a group.
template <typename C>
__device__ __forceinline__ void store_statistics(const StatisticsOut& out, int64_t group, C mean,
                                                 C squares, C count) {
  static_cast<C*>(out.mean)[group] = mean;
  static_cast<C*>(out.rstd)[group] = inverse_root(squares / count + static_cast<C>(out.eps));
  const C variance = squares / (count - 1);
  if (out.variance != nullptr) static_cast<C*>(out.variance)[group] = variance;
  const RunningUpdate& running = out.running;
  if (running.mean == nullptr) return;
  const auto update = [&](void* data, C found) {
    const C old = load_value<C>(data, running.dtype, group);
    const auto momentum = static_cast<C>(running.momentum);
    store_value(data, running.dtype, group, (1 - momentum) * old + momentum * found);
  };
  update(running.mean, mean);
  update(running.variance, variance);
}

// A block has one group.
template <typename T>
__global__ void __launch_bounds__(kMostMergeThreads)
    merge_moments(const __grid_constant__ MergeArgs args) {
  using C = compute_t<T>;
  using Moments = ChannelMoments<C, 1>;
  __shared__ Moments shared[kMostMergeThreads / 32];
  grid_dependency_wait();
  launch_next();
  Moments moments;
  for_each_part(args, [&](int64_t row, int64_t channel) {
    const C* part =
        static_cast<const C*>(args.parts) + 3 * (row * args.shape.channels.divisor + channel);
    moments.add({part[0], {part[1]}, {part[2]}});
  });
  combine_block(moments, shared);
  if (threadIdx.x != 0) return;
  uint32_t sample = blockIdx.x;
  const uint32_t channel = args.groups.divmod(sample) * args.shape.group_channels.divisor;
  const C shift =
      to_compute(static_cast<const T*>(args.input)[args.shape.group_begin(sample, channel)]);
  store_statistics(args.statistics, blockIdx.x, shift + moments.mean[0], moments.squares[0],
                   static_cast<C>(args.count));
}

template <typename T, int kValues, Walking kWalking, bool kIsActivated>
__global__ void __launch_bounds__(kWalkThreads)
    normalize_channels(const __grid_constant__ ApplyArgs args) {
  using C = compute_t<T>;
  using ThreadWalk = Walk<T, kValues, kWalking>;
  const ThreadWalk walk(args.shape, args.tasks);
  const Statistics& statistics = args.statistics;
  grid_dependency_wait();
  launch_next();
  if (walk.count == 0) return;
  C means[ThreadWalk::kChannels], rstds[ThreadWalk::kChannels];
#pragma unroll
  for (int c = 0; c < ThreadWalk::kChannels; ++c) {
    const uint32_t group = walk.group(args.shape, c);
    if (statistics.is_running) {
      means[c] = load_value<C>(statistics.mean, statistics.dtype, group);
      rstds[c] = inverse_root(load_value<C>(statistics.scale, statistics.dtype, group) +
                              static_cast<C>(statistics.eps));
      if (walk.row == 0 && walk.is_leader(args.shape)) {
        static_cast<C*>(args.mean)[group] = means[c];
        static_cast<C*>(args.rstd)[group] = rstds[c];
      }
    } else {
      means[c] = static_cast<const C*>(statistics.mean)[group];
      rstds[c] = static_cast<const C*>(statistics.scale)[group];
    }
  }
  C weights[ThreadWalk::kChannels], biases[ThreadWalk::kChannels];
  const Parameters& parameters = args.parameters;
  load_parameters<T>(parameters.weight, parameters.is_wide, walk.channel, C{1}, weights);
  load_parameters<T>(parameters.bias, parameters.is_wide, walk.channel, C{0}, biases);
  const T* input = static_cast<const T*>(args.input);
  for (int64_t from = 0; from < walk.count; from += kWalkWords) {
    Vec<T, kValues> words[kWalkWords];
    load_words(walk, input, from, words);
#pragma unroll
    for (int k = 0; k < kWalkWords; ++k) {
      if (from + k >= walk.count) break;
      const int64_t offset = walk.first + (from + k) * walk.step;
      C values[kValues];
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        const int c = ThreadWalk::sum_of_value(i);
        const C normal = (to_compute(words[k].values[i]) - means[c]) * rstds[c];
        values[i] = multiply_add(normal, weights[c], biases[c]);
      }
      if constexpr (kIsActivated) activate<T>(values, parameters.activation);
      walk.word(offset).store(static_cast<T*>(args.out) + offset, rounded<T>(values));
    }
  }
}

}  // namespace gpuopt::norm
