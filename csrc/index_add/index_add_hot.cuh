// The same for many entries with short rows, where additions to a bin that gets a share of them would
// queue up at its address: each block looks at a sample of the index, adds what hits the bins that are
// frequent there up in shared memory, and only the rest in memory.
#pragma once

#include "index_add/index_add_atomic.cuh"

namespace gpuopt::index_add {

// A set of bins in shared memory: open addressing, with a number for each.
struct HotBins {
  static constexpr uint32_t kNone = ~0u;
  uint32_t bins[kHotSlots];
  uint32_t numbers[kHotSlots];

  __device__ static uint32_t slot_of(uint32_t bin) {
    return bin * 2654435761u >> (32 - kHotSlotBits);
  }
  __device__ static uint32_t after(uint32_t slot) { return (slot + 1) % kHotSlots; }

  __device__ __forceinline__ void clear() {
    for (uint32_t i = threadIdx.x; i < kHotSlots; i += kAtomicThreads) {
      bins[i] = kNone;
      numbers[i] = 0;
    }
  }

  // The slot that is the bin's from now on. There must be a free one.
  __device__ __forceinline__ uint32_t claim(uint32_t bin) {
    for (uint32_t slot = slot_of(bin);; slot = after(slot)) {
      const uint32_t before = atomicCAS(&bins[slot], kNone, bin);
      if (before == kNone || before == bin) return slot;
    }
  }

  __device__ __forceinline__ uint32_t number_of(uint32_t bin) const {
    for (uint32_t slot = slot_of(bin); bins[slot] != kNone; slot = after(slot)) {
      if (bins[slot] == bin) return numbers[slot];
    }
    return kNone;
  }
};

// Neighbouring samples are as far apart as there is room, at places in it that don't repeat.
__device__ __forceinline__ uint32_t sampled_entry(uint32_t sample, uint32_t entries) {
  uint32_t mixed = sample * 2654435761u;
  mixed = (mixed ^ mixed >> 15) * 2246822519u;
  const uint64_t room = entries / kHotSamples;
  return static_cast<uint32_t>(sample * room + (mixed ^ mixed >> 13) % room);
}

// blockIdx: stretches of block_units units. Shared memory has room for max_hot rows, copied.
template <typename T, int V>
__global__ __launch_bounds__(kAtomicThreads,
                             kHotBlocksPerSm) void add_with_hot_bins(const AtomicArgs args,
                                                                     uint32_t block_units,
                                                                     uint32_t max_hot) {
  using S = Sum<T>;
  extern __shared__ uint4 hot_sums[];
  auto* sums = reinterpret_cast<S*>(hot_sums);  // [hot bin][copy][value of the row]
  __shared__ HotBins hot;
  __shared__ uint32_t num_hot;
  const uint32_t width = args.units.divisor * V;
  constexpr int kSamples = kHotSamples / kAtomicThreads;  // of a thread
  uint32_t sampled[kSamples];
  int64_t samples[kSamples];
#pragma unroll
  for (int i = 0; i < kSamples; ++i) {
    sampled[i] = sampled_entry(i * kAtomicThreads + threadIdx.x, args.entries);
  }
  args.index.load(sampled, kSamples, samples);
  hot.clear();
  if (threadIdx.x == 0) num_hot = 0;
  for (uint32_t i = threadIdx.x; i < max_hot * width * kHotCopies; i += kAtomicThreads)
    sums[i] = kNothing<S>;
  args.index.check(kSamples, samples);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kSamples; ++i) {
    atomicAdd(&hot.numbers[hot.claim(static_cast<uint32_t>(samples[i]))], 1u);
  }
  __syncthreads();
  uint32_t frequent[kHotSlots / kAtomicThreads];
#pragma unroll
  for (int i = 0; i < kHotSlots / kAtomicThreads; ++i) {
    const uint32_t slot = i * kAtomicThreads + threadIdx.x;
    frequent[i] = hot.numbers[slot] >= kHotFrom ? hot.bins[slot] : HotBins::kNone;
  }
  __syncthreads();
  hot.clear();
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kHotSlots / kAtomicThreads; ++i) {
    if (frequent[i] == HotBins::kNone) continue;
    const uint32_t number = atomicAdd(&num_hot, 1u);
    if (number < max_hot) hot.numbers[hot.claim(frequent[i])] = number;
  }
  __syncthreads();

  const uint64_t first = uint64_t{blockIdx.x} * block_units;
  const UnitOrigin origin(args, first);
  const auto valid = static_cast<uint32_t>(min(args.total_units - first, uint64_t{block_units}));
  const auto alpha = from_scalar<S>(args.alpha);
  const bool any_hot = num_hot > 0;
  for (uint32_t start = threadIdx.x; start < valid; start += kAtomicThreads * kAtomicUnroll) {
    Addends<T, V, kAtomicUnroll> addends(args, origin, start, kAtomicThreads, valid);
#pragma unroll
    for (int u = 0; u < kAtomicUnroll; ++u) {
      if (u >= addends.count) break;
      const uint32_t number =
          any_hot ? hot.number_of(static_cast<uint32_t>(addends.bins[u])) : HotBins::kNone;
      if (number == HotBins::kNone) {
        addends.add(args, u, alpha);
        continue;
      }
      const uint32_t copy = number * kHotCopies + addends.entries[u] % kHotCopies;
      S* sum = sums + copy * width + addends.at[u];
      const Pack<T, V> pack = addends.packs[u].values();
#pragma unroll
      for (int i = 0; i < V; ++i) {
        add_in_shared(sum + i, scaled(to_compute(pack.values[i]), alpha));
      }
    }
  }
  __syncthreads();

  for (uint32_t slot = threadIdx.x; slot < kHotSlots; slot += kAtomicThreads) {
    if (hot.bins[slot] == HotBins::kNone) continue;
    T* row = static_cast<T*>(args.self) + hot.bins[slot] * args.bin_stride;
    const S* from = sums + hot.numbers[slot] * width * kHotCopies;
    for (uint32_t at = 0; at < width; ++at) {
      S sum = kNothing<S>;
#pragma unroll
      for (int c = 0; c < kHotCopies; ++c) sum = plus(sum, from[c * width + at]);
      atomic_add(row + at * args.self_inner_stride, from_compute<T>(sum),
                 reinterpret_cast<const T*>(args.first_byte),
                 reinterpret_cast<const T*>(args.end_byte));
    }
  }
}

}  // namespace gpuopt::index_add
