// Gradients of group and batch norm: the sums of each channel, the two means of each group, and
// then the gradient of the input.
//
//   normal = (input - mean) * rstd          scaled = grad * weight
//   input_grad = rstd * (scaled - mean(scaled) - normal * mean(scaled * normal))
#pragma once

#include "norm/paths/norm_channels.cuh"

namespace gpuopt::norm {

// What a thread reads of its channels.
template <typename C, typename ThreadWalk>
struct ChannelFactors {
  C means[ThreadWalk::kChannels], rstds[ThreadWalk::kChannels];

  __device__ __forceinline__ ChannelFactors(const ThreadWalk& walk, const ChannelGradArgs& args) {
#pragma unroll
    for (int c = 0; c < ThreadWalk::kChannels; ++c) {
      const uint32_t group = walk.group(args.shape, c);
      means[c] = static_cast<const C*>(args.mean)[group];
      rstds[c] = static_cast<const C*>(args.rstd)[group];
    }
  }
};

// Where the sums of a channel are: [rows][2][channels].
template <typename C>
__device__ __forceinline__ C* sums_at(void* sums, int64_t row, int array, int64_t channels,
                                      int64_t channel) {
  return static_cast<C*>(sums) + (2 * row + array) * channels + channel;
}

template <typename T, int kValues, Walking kWalking>
__global__ void __launch_bounds__(kWalkThreads)
    add_channels(const __grid_constant__ ChannelGradArgs args) {
  using C = compute_t<T>;
  using ThreadWalk = Walk<T, kValues, kWalking>;
  using State = Sums<C, ThreadWalk::kChannels>;
  __shared__ State shared[ThreadWalk::kIsColumns ? kWalkThreads : kWalkThreads / 32];
  const ThreadWalk walk(args.shape, args.tasks);
  grid_dependency_wait();
  launch_next();
  State sums;
  if (walk.count > 0) {
    const ChannelFactors<C, ThreadWalk> factors(walk, args);
    for (int64_t from = 0; from < walk.count; from += kWalkWords) {
      Vec<T, kValues> inputs[kWalkWords], grads[kWalkWords];
      load_words(walk, static_cast<const T*>(args.input), from, inputs);
      load_words(walk, static_cast<const T*>(args.grad), from, grads);
#pragma unroll
      for (int k = 0; k < kWalkWords; ++k) {
        if (from + k >= walk.count) break;
        const auto part = walk.word(walk.first + (from + k) * walk.step);
#pragma unroll
        for (int i = 0; i < kValues; ++i) {
          const int c = ThreadWalk::sum_of_value(i);
          const C grad = to_compute(grads[k].values[i]);
          const C normal = (to_compute(inputs[k].values[i]) - factors.means[c]) * factors.rstds[c];
          if (!part.has(i)) continue;
          sums.values[0][c] = multiply_add(grad, normal, sums.values[0][c]);
          sums.values[1][c] += grad;
        }
      }
    }
  }
  walk.combine(sums, shared);
  if (!walk.is_leader(args.shape)) return;
  const int64_t channels = args.shape.channels.divisor;
#pragma unroll
  for (int a = 0; a < 2; ++a) {
    C* to = sums_at<C>(args.sums, walk.row, a, channels, walk.channel);
#pragma unroll
    for (int c = 0; c < ThreadWalk::kChannels; ++c) to[c] = sums.values[a][c];
  }
}

// A block has one group.
template <typename T>
__global__ void __launch_bounds__(kMostMergeThreads)
    merge_sums(const __grid_constant__ MergeArgs args) {
  using C = compute_t<T>;
  using State = Sums<C, 1>;
  __shared__ State shared[kMostMergeThreads / 32];
  grid_dependency_wait();
  launch_next();
  State sums;
  for_each_part(args, [&](int64_t row, int64_t channel) {
    C weight[1];
    load_parameters<T>(args.parameters.weight, args.parameters.is_wide, channel, C{1}, weight);
#pragma unroll
    for (int a = 0; a < 2; ++a) {
      const C* from =
          static_cast<const C*>(args.parts) + (2 * row + a) * args.shape.channels.divisor + channel;
      sums.values[a][0] = multiply_add(weight[0], *from, sums.values[a][0]);
    }
  });
  combine_block(sums, shared);
  if (threadIdx.x != 0) return;
  C* means = static_cast<C*>(args.means) + 2 * int64_t{blockIdx.x};
#pragma unroll
  for (int a = 0; a < 2; ++a) means[a] = sums.values[a][0] / static_cast<C>(args.count);
}

template <typename T, int kValues, Walking kWalking>
__global__ void __launch_bounds__(kWalkThreads)
    differentiate_channels(const __grid_constant__ ChannelGradArgs args) {
  using C = compute_t<T>;
  using ThreadWalk = Walk<T, kValues, kWalking>;
  const ThreadWalk walk(args.shape, args.tasks);
  grid_dependency_wait();
  launch_next();
  if (walk.count == 0) return;
  const ChannelFactors<C, ThreadWalk> factors(walk, args);
  C products[ThreadWalk::kChannels] = {}, middles[ThreadWalk::kChannels] = {},
    weights[ThreadWalk::kChannels];
  load_parameters<T>(args.parameters.weight, args.parameters.is_wide, walk.channel, C{1}, weights);
  if (args.means != nullptr) {
#pragma unroll
    for (int c = 0; c < ThreadWalk::kChannels; ++c) {
      const C* means = static_cast<const C*>(args.means) + 2 * int64_t{walk.group(args.shape, c)};
      products[c] = means[0], middles[c] = means[1];
    }
  }
  for (int64_t from = 0; from < walk.count; from += kWalkWords) {
    Vec<T, kValues> inputs[kWalkWords], grads[kWalkWords];
    load_words(walk, static_cast<const T*>(args.input), from, inputs);
    load_words(walk, static_cast<const T*>(args.grad), from, grads);
#pragma unroll
    for (int k = 0; k < kWalkWords; ++k) {
      if (from + k >= walk.count) break;
      const int64_t offset = walk.first + (from + k) * walk.step;
      Vec<T, kValues> out;
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        const int c = ThreadWalk::sum_of_value(i);
        const C normal = (to_compute(inputs[k].values[i]) - factors.means[c]) * factors.rstds[c];
        const C scaled = to_compute(grads[k].values[i]) * weights[c];
        out.values[i] =
            from_compute<T>(factors.rstds[c] * (scaled - middles[c] - normal * products[c]));
      }
      walk.word(offset).store(static_cast<T*>(args.input_grad) + offset, out);
    }
  }
}

}  // namespace gpuopt::norm
