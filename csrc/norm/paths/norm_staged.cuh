// Groups that fit in the shared memory of a block, which reads them once. A thread reads back only
// what it has copied, so copies need no barrier.
#pragma once

#include "common/async.cuh"
#include "norm/device/norm_group.cuh"
#include "norm/paths/norm_channels_backward.cuh"

namespace gpuopt::norm {

// The words of a block's group. Teams of threads have a plane each, and then the next ones.
template <typename T, int kValues, bool kMasked>
struct StagedGroup {
  using Part = PlaneWord<T, kValues, kMasked>;
  const ChannelShape& shape;
  const Staging& staging;
  uint32_t team, teams, lane, lanes;

  __device__ __forceinline__ StagedGroup(const ChannelShape& given_shape,
                                         const Staging& given_staging)
      : shape(given_shape), staging(given_staging) {
    lanes = staging.lanes.divisor;
    lane = threadIdx.x & (lanes - 1);
    team = staging.lanes.div(threadIdx.x);
    teams = staging.lanes.div(blockDim.x);
  }

  // Calls f(word of this thread, its address, which values belong to the plane) for each word, and
  // begin(channel) and end(channel, sample, is_valid) around each plane. All threads of a block
  // call end() equally often.
  template <typename Begin, typename Each, typename End>
  __device__ __forceinline__ void for_each_plane(Begin&& begin, Each&& each, End&& end) const {
    uint32_t word = 0;
#pragma unroll 1
    for (uint32_t first = 0; first < staging.planes; first += teams) {
      const bool is_valid = first + team < staging.planes;
      const uint32_t plane = blockIdx.x * staging.first_stride + (first + team) * staging.stride;
      const uint32_t sample = shape.channels.div(plane);
      const uint32_t channel = plane - sample * shape.channels.divisor;
      if (is_valid) {
        begin(channel);
        const Plane<kValues, kMasked> words(plane, shape.length);
        for (int64_t unit = lane; unit < words.units; unit += lanes) {
          const int64_t offset = words.aligned + unit * kValues;
          each(word++, offset, Part(offset, words.first, shape.length));
        }
      }
      end(channel, sample, is_valid);
    }
  }
  template <typename Each>
  __device__ __forceinline__ void for_each_word(Each&& each) const {
    for_each_plane([](uint32_t) {}, each, [](uint32_t, uint32_t, bool) {});
  }
};

template <typename T, int kValues>
__device__ __forceinline__ void stage_word(Vec<T, kValues>& staged, const T* from) {
  if constexpr (sizeof(staged) >= 4) {
    copy_async<T, kValues>(staged.values, from);
  } else {
    staged = load_vec<T, kValues>(from);
  }
}

template <typename T, int kValues, bool kMasked, bool kIsActivated>
__global__ void __launch_bounds__(kMostStagedThreads)
    normalize_staged(const __grid_constant__ StagedForwardArgs args) {
  using C = compute_t<T>;
  using Part = PlaneWord<T, kValues, kMasked>;
  extern __shared__ uint4 staged_memory[];
  __shared__ C shared[2][kMaxWarps];
  auto* staged = reinterpret_cast<Vec<T, kValues>*>(staged_memory) + threadIdx.x;
  const StagedGroup<T, kValues, kMasked> group(args.shape, args.staging);
  const T* input = static_cast<const T*>(args.input);
  grid_dependency_wait();
  launch_next();
  group.for_each_word([&](uint32_t word, int64_t offset, const Part&) {
    stage_word(staged[word * blockDim.x], input + offset);
  });
  // One value of the group is subtracted first, because the sum of large values would be rounded.
  const C shift =
      to_compute(input[int64_t{blockIdx.x} * args.staging.first_stride * args.shape.length]);
  wait_for_copies();
  C sums[1] = {};
  group.for_each_word([&](uint32_t word, int64_t, const Part& part) {
    const Vec<T, kValues> values = staged[word * blockDim.x];
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      sums[0] += part.has(i) ? to_compute(values.values[i]) - shift : C{0};
    }
  });
  const Group block(blockDim.x);
  add_up(block, sums, shared[0]);
  const auto count = static_cast<C>(args.staging.count);
  const C mean = shift + sums[0] / count;
  C squares[1] = {};
  group.for_each_word([&](uint32_t word, int64_t, const Part& part) {
    const Vec<T, kValues> values = staged[word * blockDim.x];
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const C deviation = part.has(i) ? to_compute(values.values[i]) - mean : C{0};
      squares[0] = multiply_add(deviation, deviation, squares[0]);
    }
  });
  add_up(block, squares, shared[1]);
  const C rstd = inverse_root(squares[0] / count + static_cast<C>(args.statistics.eps));
  if (threadIdx.x == 0) store_statistics(args.statistics, blockIdx.x, mean, squares[0], count);
  C weight[1], bias[1];
  const Parameters& parameters = args.parameters;
  group.for_each_plane(
      [&](uint32_t channel) {
        load_parameters<T>(parameters.weight, parameters.is_wide, channel, C{1}, weight);
        load_parameters<T>(parameters.bias, parameters.is_wide, channel, C{0}, bias);
      },
      [&](uint32_t word, int64_t offset, const Part& part) {
        const Vec<T, kValues> values = staged[word * blockDim.x];
        C results[kValues];
#pragma unroll
        for (int i = 0; i < kValues; ++i) {
          const C normal = (to_compute(values.values[i]) - mean) * rstd;
          results[i] = multiply_add(normal, weight[0], bias[0]);
        }
        if constexpr (kIsActivated) activate<T>(results, parameters.activation);
        part.store(static_cast<T*>(args.out) + offset, rounded<T>(results));
      },
      [](uint32_t, uint32_t, bool) {});
}

template <typename T, int kValues, bool kMasked, bool kIsActivated>
__global__ void __launch_bounds__(kMostStagedThreads)
    differentiate_staged(const __grid_constant__ StagedBackwardArgs given) {
  using C = compute_t<T>;
  using Part = PlaneWord<T, kValues, kMasked>;
  extern __shared__ uint4 staged_memory[];
  __shared__ C shared[2 * kMaxWarps], exchanged[2][2 * kMaxWarps];
  const ChannelGradArgs& args = given.args;
  auto* inputs = reinterpret_cast<Vec<T, kValues>*>(staged_memory) + threadIdx.x;
  auto* grads = inputs + given.staging.words * blockDim.x;
  const StagedGroup<T, kValues, kMasked> group(args.shape, given.staging);
  grid_dependency_wait();
  launch_next();
  group.for_each_word([&](uint32_t word, int64_t offset, const Part&) {
    stage_word(inputs[word * blockDim.x], static_cast<const T*>(args.input) + offset);
    stage_word(grads[word * blockDim.x], static_cast<const T*>(args.grad) + offset);
  });
  ChannelFactors<T, 1, kIsActivated> factors;
  factors.means[0] = static_cast<const C*>(args.mean)[blockIdx.x];
  factors.rstds[0] = static_cast<const C*>(args.rstd)[blockIdx.x];
  wait_for_copies();

  // Calls f(index of a value, normalised value, gradient) for the values of a word.
  const auto for_each_value = [&](uint32_t word, auto&& f) {
    C normals[kValues], wide_grads[kValues];
    factors.widen_word(inputs[word * blockDim.x], grads[word * blockDim.x],
                       args.parameters.activation, normals, wide_grads);
#pragma unroll
    for (int i = 0; i < kValues; ++i) f(i, normals[i], wide_grads[i]);
  };

  // Add up: each plane for the gradients of weight and bias, and the group.
  Group team_threads(blockDim.x);
  team_threads.lanes = group.lanes;
  team_threads.number = group.team;
  team_threads.lane = group.lane;
  C totals[2] = {}, sums[2] = {};
  int iteration = 0;
  group.for_each_plane([&](uint32_t channel) { factors.load(args.parameters, channel); },
                       [&](uint32_t word, int64_t, const Part& part) {
                         for_each_value(word, [&](int i, C normal, C value) {
                           if (!part.has(i)) return;
                           sums[0] = multiply_add(value, normal, sums[0]);
                           sums[1] += value;
                         });
                       },
                       [&](uint32_t channel, uint32_t sample, bool is_valid) {
                         if (is_valid) {
                           totals[0] = multiply_add(factors.weights[0], sums[0], totals[0]);
                           totals[1] = multiply_add(factors.weights[0], sums[1], totals[1]);
                         }
                         if (args.sums != nullptr) {
                           add_up(team_threads, sums, exchanged[iteration]);
                           iteration ^= 1;
                           if (is_valid && group.lane == 0) {
                             const int64_t channels = args.shape.channels.divisor;
                             *sums_at<C>(args.sums, sample, 0, channels, channel) = sums[0];
                             *sums_at<C>(args.sums, sample, 1, channels, channel) = sums[1];
                           }
                         }
                         sums[0] = sums[1] = 0;
                       });
  add_up(Group(blockDim.x), totals, shared);
  const auto count = static_cast<C>(given.staging.count);
  const C product = totals[0] / count, middle = totals[1] / count;

  // Store.
  group.for_each_plane([&](uint32_t channel) { factors.load(args.parameters, channel); },
                       [&](uint32_t word, int64_t offset, const Part& part) {
                         C results[kValues];
                         for_each_value(word, [&](int i, C normal, C value) {
                           results[i] = factors.rstds[0] *
                                        (value * factors.weights[0] - middle - normal * product);
                         });
                         part.store(static_cast<T*>(args.input_grad) + offset, rounded<T>(results));
                       },
                       [](uint32_t, uint32_t, bool) {});
}

}  // namespace gpuopt::norm
