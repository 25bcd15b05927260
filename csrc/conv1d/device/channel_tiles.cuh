// Tiles of depthwise channels-last signals in shared memory: some channels at some positions.
#pragma once

#include "common/recomputed.cuh"
#include "conv1d/device/rows.cuh"

namespace gpuopt::conv1d {

// A sequence holds every dilation-th position of a signal from `offset` on. A convolution of stride
// 1 maps sequences to sequences, and needs no dilation there.
template <typename T>
struct Sequence {
  T* first;  // index 0, which may lie outside the signal
  int64_t step;
  int32_t low, high;  // indices that exist

  __device__ __forceinline__ Sequence(T* signal, int64_t stride, int64_t size, int32_t offset,
                                      const FastDiv& dilation)
      : first(signal + offset * stride), step(stride * dilation.divisor) {
    const auto count_to = [&](int32_t position) {  // indices before a position
      return position <= 0 ? 0
                           : static_cast<int32_t>(dilation.div(static_cast<uint32_t>(position) +
                                                               dilation.divisor - 1));
    };
    low = count_to(-offset);
    high = count_to(static_cast<int32_t>(size) - offset);
  }
  __device__ __forceinline__ bool has(int32_t index) const { return index >= low && index < high; }
  __device__ __forceinline__ T* at(int32_t index) const { return first + index * step; }
};

// ---------------------------------------------------------------- half types: transposed tiles

// A row per channel, so that a vector holds 8 neighbouring positions of a channel. Neighbouring
// vectors of a row use different banks. So do vectors of 8 neighbouring rows (the pitch is odd),
// and of 8 rows that lie 8 apart (a vector is left free after 8 rows).
struct TileRows {
  uint4* vecs;
  uint32_t pitch;        // in vectors
  uint32_t width_shift;  // 2^width_shift rows
  uint32_t channel;      // of the first row
  uint32_t channels;     // of the signal

  __device__ __forceinline__ uint4* row(uint32_t c) const { return vecs + c * pitch + c / 8; }

  // Calls visit(c, octet) for row c and every N-th one, and all `octets` of 8 positions.
  template <int N, typename Visit>
  __device__ __forceinline__ void visit(uint32_t octets, const Visit& visit) const {
    const uint32_t shift = width_shift - (N == 8 ? 3 : 0);
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < octets << shift; i += kThreads) {
      const uint32_t c = (i & ((1u << shift) - 1)) * N;
      if (channel + c < channels) visit(c, i >> shift);
    }
  }

  // Loads positions from `begin` on, N channels by one access. Missing values are 0.
  template <int N, typename T>
  __device__ __forceinline__ void load(const Sequence<const T>& from, int32_t begin,
                                       uint32_t octets) const {
    constexpr uint32_t kOctets = N == 8 ? 1 : 4;  // whose loads are in flight together
    visit<N>((octets + kOctets - 1) / kOctets, [&](uint32_t c, uint32_t first) {
      first *= kOctets;
      const int32_t position = begin + static_cast<int32_t>(8 * first);
      const int64_t step = recomputed(from.step);  // the loop would keep many multiples
      const T* address = from.at(position) + channel + c;
      Vec<T, N> values[8 * kOctets];
#pragma unroll
      for (int j = 0; j < 8 * kOctets; ++j) {
        values[j] = load_vec_if<T, N>(address, from.has(position + j));
        address += step;
      }
#pragma unroll
      for (uint32_t octet = 0; octet < kOctets; ++octet) {
        if (first + octet >= octets) break;
        uint4* const to = row(c) + first + octet;
#pragma unroll
        for (int i = 0; i < N; ++i) {
          Vec<T, 8> vec;
#pragma unroll
          for (int j = 0; j < 8; ++j) vec.values[j] = values[8 * octet + j].values[i];
          memcpy(to + i * pitch, &vec, sizeof(vec));
        }
      }
    });
  }

  // Stores positions from `begin` on, N channels by one access.
  template <int N, typename T>
  __device__ __forceinline__ void store(const Sequence<T>& to, int32_t begin,
                                        uint32_t octets) const {
    visit<N>(octets, [&](uint32_t c, uint32_t octet) {
      const int32_t position = begin + static_cast<int32_t>(8 * octet);
      if (position >= to.high) return;
      const uint4* const from = row(c) + octet;
      Vec<T, 8> rows[N];
#pragma unroll
      for (int i = 0; i < N; ++i) rows[i] = vec_of<T>(from[i * pitch]);
      T* address = to.at(position) + channel + c;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        Vec<T, N> values;
#pragma unroll
        for (int i = 0; i < N; ++i) values.values[i] = rows[i].values[j];
        if (position + j < to.high) store_vec(address, values);
        address += to.step;
      }
    });
  }
};

// ---------------------------------------------------------------- f32: tiles in the signal's order

constexpr int kTileChannels = 32;  // neighbouring lanes have neighbouring channels
constexpr int kSlideSums = 16;     // of a thread

// Starts copying `count` positions from `begin` on, for the channel `from.first` of each lane.
// Missing values are 0.
__device__ __forceinline__ void copy_positions(float* to, const Sequence<const float>& from,
                                               int32_t begin, int32_t count, bool exists) {
  const uint32_t lane = threadIdx.x % 32;
#pragma unroll 4
  for (auto i = static_cast<int32_t>(threadIdx.x / 32); i < count; i += kThreads / 32) {
    copy_async_if(to + i * kTileChannels + lane, from.at(begin + i), exists && from.has(begin + i));
  }
}

// sums[i] += factors[k] * values[k + i] over `count` factors, in one channel of a tile. Factors lie
// `apart` in shared memory. The values under the sums stay in a ring of registers.
__device__ __forceinline__ void slide_over_tile(float (&sums)[kSlideSums], const float* values,
                                                const float* factors, int32_t apart,
                                                int32_t count) {
  constexpr int kStep = 4, kRing = kSlideSums + kStep;
  float ring[kRing];
#pragma unroll
  for (int i = 0; i < kSlideSums; ++i) ring[i] = values[i * kTileChannels];
  values += kSlideSums * kTileChannels;
  const auto add_step = [&](int step, auto is_used) {
    float step_factors[kStep];
#pragma unroll
    for (int k = 0; k < kStep; ++k) {
      step_factors[k] = is_used(k) ? factors[(step * kStep + k) * apart] : 0;
      ring[(kSlideSums + step * kStep + k) % kRing] = values[(step * kStep + k) * kTileChannels];
    }
#pragma unroll
    for (int k = 0; k < kStep; ++k) {
      // Missing factors are skipped: 0 times an infinite value is NaN.
      if (is_used(k)) {
#pragma unroll
        for (int i = 0; i < kSlideSums; ++i) {
          sums[i] = multiply_add(step_factors[k], ring[(step * kStep + k + i) % kRing], sums[i]);
        }
      }
    }
  };
#pragma unroll 1
  for (; count >= kRing; count -= kRing) {
#pragma unroll
    for (int step = 0; step < kRing / kStep; ++step) add_step(step, [](int) { return true; });
    values += kRing * kTileChannels;
    factors += kRing * apart;
  }
#pragma unroll
  for (int step = 0; step < kRing / kStep; ++step) {
    const int32_t left = count - step * kStep;
    if (left >= kStep) {
      add_step(step, [](int) { return true; });
    } else if (left > 0) {
      add_step(step, [&](int k) { return k < left; });
    }
  }
}

}  // namespace gpuopt::conv1d
