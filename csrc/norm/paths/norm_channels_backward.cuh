// Gradients of group and batch norm: the sums of each channel, the two means of each group, and
// then the gradient of the input.
//
//   normal = (input - mean) * rstd          scaled = grad * weight
//   input_grad = rstd * (scaled - mean(scaled) - normal * mean(scaled * normal))
//
// With an activation, `grad` is the product of the given gradient and the activation's derivative.
#pragma once

#include "norm/paths/norm_channels.cuh"

namespace gpuopt::norm {

// What a thread reads of its channels.
template <typename T, int kChannels, bool kIsActivated>
struct ChannelFactors {
  using C = compute_t<T>;
  C means[kChannels], rstds[kChannels], weights[kChannels], biases[kChannels];

  template <typename ThreadWalk>
  __device__ __forceinline__ void load(const ThreadWalk& walk, const ChannelGradArgs& args) {
    load(args.parameters, walk.channel);
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      const uint32_t group = walk.group(args.shape, c);
      means[c] = static_cast<const C*>(args.mean)[group];
      rstds[c] = static_cast<const C*>(args.rstd)[group];
    }
  }
  __device__ __forceinline__ void load(const Parameters& parameters, uint32_t channel) {
    load_parameters<T>(parameters.weight, parameters.is_wide, channel, C{1}, weights);
    load_parameters<T>(parameters.bias, parameters.is_wide, channel, C{0}, biases);
  }

  // The normalised values of a word, and the gradients of what the activation was applied to.
  template <int kValues>
  __device__ __forceinline__ void widen_word(const Vec<T, kValues>& inputs,
                                             const Vec<T, kValues>& given, Activation activation,
                                             C (&normals)[kValues], C (&grads)[kValues]) const {
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const int c = kChannels == 1 ? 0 : i;
      normals[i] = (to_compute(inputs.values[i]) - means[c]) * rstds[c];
      grads[i] = to_compute(given.values[i]);
    }
    if constexpr (kIsActivated) {
      C affine[kValues];
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        const int c = kChannels == 1 ? 0 : i;
        affine[i] = multiply_add(normals[i], weights[c], biases[c]);
      }
      differentiate_activation<T>(grads, affine, activation);
    }
  }
};

// Where the sums of a channel are: [rows][2][channels].
template <typename C>
__device__ __forceinline__ C* sums_at(void* sums, int64_t row, int array, int64_t channels,
                                      int64_t channel) {
  return static_cast<C*>(sums) + (2 * row + array) * channels + channel;
}

// With an activation, columns would have 160 registers, and an SM one block.
constexpr int least_blocks(bool is_activated) { return is_activated ? 2 : 0; }

template <typename T, int kValues, Walking kWalking, bool kIsActivated>
__global__ void __launch_bounds__(kWalkThreads, least_blocks(kIsActivated))
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
    ChannelFactors<T, ThreadWalk::kChannels, kIsActivated> factors;
    factors.load(walk, args);
    for (int64_t from = 0; from < walk.count; from += kWalkWords) {
      Vec<T, kValues> inputs[kWalkWords], grads[kWalkWords];
      load_words(walk, static_cast<const T*>(args.input), from, inputs);
      load_words(walk, static_cast<const T*>(args.grad), from, grads);
#pragma unroll
      for (int k = 0; k < kWalkWords; ++k) {
        if (from + k >= walk.count) break;
        const auto part = walk.word(walk.first + (from + k) * walk.step);
        C normals[kValues], wide_grads[kValues];
        factors.widen_word(inputs[k], grads[k], args.parameters.activation, normals, wide_grads);
#pragma unroll
        for (int i = 0; i < kValues; ++i) {
          const int c = ThreadWalk::sum_of_value(i);
          if (!part.has(i)) continue;
          sums.values[0][c] = multiply_add(wide_grads[i], normals[i], sums.values[0][c]);
          sums.values[1][c] += wide_grads[i];
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

template <typename T, int kValues, Walking kWalking, bool kIsActivated>
__global__ void __launch_bounds__(kWalkThreads, least_blocks(kIsActivated))
    differentiate_channels(const __grid_constant__ ChannelGradArgs args) {
  using C = compute_t<T>;
  using ThreadWalk = Walk<T, kValues, kWalking>;
  const ThreadWalk walk(args.shape, args.tasks);
  grid_dependency_wait();
  launch_next();
  if (walk.count == 0) return;
  ChannelFactors<T, ThreadWalk::kChannels, kIsActivated> factors;
  factors.load(walk, args);
  C products[ThreadWalk::kChannels] = {}, middles[ThreadWalk::kChannels] = {};
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
      C normals[kValues], values[kValues];
      factors.widen_word(inputs[k], grads[k], args.parameters.activation, normals, values);
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        const int c = ThreadWalk::sum_of_value(i);
        const C scaled = values[i] * factors.weights[c];
        values[i] = factors.rstds[c] * (scaled - middles[c] - normals[i] * products[c]);
      }
      walk.word(offset).store(static_cast<T*>(args.input_grad) + offset, rounded<T>(values));
    }
  }
}

}  // namespace gpuopt::norm
