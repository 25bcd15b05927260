// How threads go through the planes or columns of a tensor.
//
//   planes    team 0   | w0 w1 w2 w3 | w0 w1 w2 w3 | ..    a plane: the lanes of a team, word by
//   word
//             team 1   the next plane
//   columns   row 0    | lane 0 | lane 1 | lane 2 | ..     a word of each lane is some channels
//             row 1    the next threads
#pragma once

#include "common/warp.cuh"
#include "norm/device/norm_access.cuh"
#include "norm/norm_channels_plan.h"

namespace gpuopt::norm {

// Which values of a word belong to a plane: from `begin` to `end`.
template <typename T, int kValues, bool kMasked>
struct PlaneWord {
  int begin = 0, end = kValues;

  __device__ __forceinline__ PlaneWord(int64_t offset, int64_t first, int64_t length) {
    if constexpr (kMasked) {
      const int64_t position = offset - first;
      begin = position < 0 ? static_cast<int>(-position) : 0;
      end = static_cast<int>(min(int64_t{kValues}, length - position));
    }
  }
  __device__ __forceinline__ bool has(int i) const { return !kMasked || (i >= begin && i < end); }
  __device__ __forceinline__ int count() const { return end - begin; }
  __device__ __forceinline__ void store(T* to, const Vec<T, kValues>& values) const {
    if constexpr (kMasked) {
      if (count() < kValues) {
#pragma unroll
        for (int i = 0; i < kValues; ++i) {
          if (has(i)) to[i] = values.values[i];
        }
        return;
      }
    }
    // The compiler splits ordinary stores of vectors behind the branches of a loop.
    if constexpr (sizeof(values) >= 4) {
      store_whole(to, values);
    } else {
      store_vec(to, values);
    }
  }
};

// The words of a plane: from `aligned` on, `units` of them.
template <int kValues, bool kMasked>
struct Plane {
  int64_t first, aligned, units;

  __device__ __forceinline__ Plane(uint32_t plane, int64_t length) {
    first = plane * length;
    const int64_t shift = kMasked ? first % kValues : 0;
    aligned = first - shift;
    units = (shift + length + kValues - 1) / kValues;
  }
};

// The words of a thread: `count` of them, `step` values apart.
template <typename T, int kValuesOf, Walking kWalking>
struct Walk {
  static constexpr int kValues = kValuesOf;
  static constexpr bool kIsColumns = kWalking == Walking::kColumns;
  static constexpr bool kMasked = kWalking == Walking::kMaskedPlanes;
  static constexpr int kChannels = kIsColumns ? kValues : 1;  // of a thread
  using Part = PlaneWord<T, kValues, kMasked>;

  uint32_t sample = 0, channel = 0, row = 0;  // row: of partial results
  int64_t first = 0, step = 0, count = 0;
  int64_t plane_first = 0, length = 0;
  uint32_t lane, lanes;

  __device__ __forceinline__ Walk(const ChannelShape& shape, const Tasks& tasks) {
    const uint32_t block = tasks.is_reversed ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    lanes = tasks.lanes.divisor;
    lane = threadIdx.x & (lanes - 1);
    // Powers of two, by which 64-bit numbers are divided.
    const uint32_t log_lanes = tasks.lanes.shift, log_teams = kLogWalkThreads - log_lanes;
    const uint32_t team = threadIdx.x >> log_lanes, teams = 1u << log_teams;
    length = shape.length;
    if constexpr (kIsColumns) {
      uint32_t rest = block;
      const uint32_t unit = tasks.tiles.divmod(rest) * lanes + lane;
      const uint32_t part = tasks.parts.divmod(rest), channels = shape.channels.divisor;
      sample = rest;
      channel = unit * kValues;
      row = sample * tasks.parts.divisor + part;
      const int64_t begin = part * tasks.size + team, end = min((part + 1) * tasks.size, length);
      if (channel < channels && begin < end) count = (end - begin + teams - 1) >> log_teams;
      first = (sample * length + begin) * channels + channel;
      step = int64_t{teams} * channels;
    } else {
      uint32_t plane = block * teams + team;
      const uint32_t part = tasks.parts.divmod(plane);
      sample = shape.channels.div(plane);
      channel = plane - sample * shape.channels.divisor;
      row = sample * tasks.parts.divisor + part;
      const Plane<kValues, kMasked> words(plane, length);
      plane_first = words.first;
      const int64_t begin = part * tasks.size + lane;
      const int64_t end = min((part + 1) * tasks.size, words.units);
      if (plane < shape.planes && begin < end) count = (end - begin + lanes - 1) >> log_lanes;
      first = words.aligned + begin * kValues;
      step = int64_t{lanes} * kValues;
      is_plane_ = plane < shape.planes;
    }
  }

  // Which sum a value belongs to.
  static constexpr __device__ __forceinline__ int sum_of_value(int i) { return kIsColumns ? i : 0; }

  __device__ __forceinline__ Part word(int64_t offset) const {
    return Part(offset, plane_first, length);
  }

  // Whether this thread writes what its channels' threads have found together.
  __device__ __forceinline__ bool is_leader(const ChannelShape& shape) const {
    if constexpr (kIsColumns) return threadIdx.x < lanes && channel < shape.channels.divisor;
    return lane == 0 && is_plane_;
  }

  // Where the statistics of a channel are.
  __device__ __forceinline__ uint32_t group(const ChannelShape& shape, int i) const {
    return sample * shape.groups + shape.group_channels.div(channel + i);
  }

  // Combines the states of the threads that have the same channels. Leaders get the result.
  // `shared` has a state for each thread of columns, or for each warp of planes.
  template <typename State>
  __device__ __forceinline__ void combine(State& state, State* shared) const {
    const uint32_t warp = threadIdx.x / 32, in_warp = threadIdx.x % 32;
    const uint32_t last = kIsColumns ? 32 : min(lanes, 32u);
    for (uint32_t distance = kIsColumns ? lanes : 1; distance < last; distance *= 2) {
      state.add(shuffle_xor(state, static_cast<int>(distance)));
    }
    const uint32_t warps = kIsColumns ? blockDim.x / 32 : lanes / 32;
    if (warps <= 1) return;
    if constexpr (kIsColumns) {
      shared[threadIdx.x] = state;
      __syncthreads();
      if (threadIdx.x >= lanes) return;
      for (uint32_t other = 1; other < warps; ++other) state.add(shared[other * 32 + in_warp]);
    } else {
      if (in_warp == 0) shared[warp] = state;
      __syncthreads();
      if (lane != 0) return;
      for (uint32_t other = 1; other < warps; ++other) state.add(shared[warp + other]);
    }
  }

 private:
  bool is_plane_ = false;
};

// Two sums for each channel of a thread.
template <typename C, int kChannels>
struct Sums {
  C values[2][kChannels] = {};

  __device__ __forceinline__ void add(const Sums& other) {
#pragma unroll
    for (int a = 0; a < 2; ++a) {
#pragma unroll
      for (int i = 0; i < kChannels; ++i) values[a][i] += other.values[a][i];
    }
  }
};

// Moments of the channels of a thread, which have equally many values.
template <typename C, int kChannels>
struct ChannelMoments {
  C count = 0, mean[kChannels] = {}, squares[kChannels] = {};

  // See norm_moments.cuh.
  __device__ __forceinline__ void add(const ChannelMoments& other) {
    if (other.count == 0) return;
    const C all = count + other.count, share = other.count / all;
#pragma unroll
    for (int i = 0; i < kChannels; ++i) {
      const C delta = other.mean[i] - mean[i];
      mean[i] += delta * share;
      squares[i] += other.squares[i] + delta * delta * count * share;
    }
    count = all;
  }
};

// Combines the states of all threads of a block. Thread 0 gets the result. `shared` has a state for
// each warp.
template <typename State>
__device__ __forceinline__ void combine_block(State& state, State* shared) {
  for (int distance = 1; distance < 32; distance *= 2) state.add(shuffle_xor(state, distance));
  const uint32_t warps = blockDim.x / 32;
  if (warps == 1) return;
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = state;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (uint32_t other = 1; other < warps; ++other) state.add(shared[other]);
}

}  // namespace gpuopt::norm
