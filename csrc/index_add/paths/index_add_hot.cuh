// Atomic additions of many short rows. Additions to a frequent bin would queue up at its address.
// So one block looks for bins that are frequent in a sample of the index. Then blocks sum the rows
// of these bins in shared memory, and add only the other rows to memory directly.
#pragma once

#include "common/warp.cuh"
#include "index_add/paths/index_add_atomic.cuh"

namespace gpuopt::index_add {

// A set of bins in shared memory, with a number for each. Open addressing.
struct HotBins {
  static constexpr uint32_t kNone = ~0u;
  uint32_t bins[kHotSlots];
  uint32_t numbers[kHotSlots];

  __device__ static uint32_t slot_of(uint32_t bin) {
    return bin * 2654435761u >> (32 - kHotSlotBits);
  }
  __device__ static uint32_t after(uint32_t slot) { return (slot + 1) % kHotSlots; }

  __device__ __forceinline__ void clear() {
    for (uint32_t i = threadIdx.x; i < kHotSlots; i += blockDim.x) {
      bins[i] = kNone;
      numbers[i] = 0;
    }
  }

  // Returns the slot of `bin`, and claims a free one if it has none. A free one must exist.
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

// Every sample comes from a range of its own, all ranges equally long. Its position in the range is
// mixed, so samples are not periodic.
__device__ __forceinline__ uint32_t sampled_entry(uint32_t sample, uint32_t entries) {
  uint32_t mixed = sample * 2654435761u;
  mixed = (mixed ^ mixed >> 15) * 2246822519u;
  const uint64_t room = entries / kHotSamples;
  return static_cast<uint32_t>(sample * room + (mixed ^ mixed >> 13) % room);
}

// One block, with one sample per thread. If every block looks for frequent bins by itself, 2^20
// uniform values take 27 us on an H200 instead of 23 us.
template <int Samples>
__global__ __launch_bounds__(Samples) void find_hot_bins(const Index index, uint32_t entries,
                                                         uint32_t max_hot, HotList* list) {
  __shared__ HotBins hot;
  __shared__ uint32_t num_hot;
  launch_dependents();
  grid_dependency_wait();
  const uint32_t sampled[1] = {sampled_entry(threadIdx.x, entries)};
  int64_t bin[1];
  index.load(sampled, 1, bin);
  hot.clear();
  if (threadIdx.x == 0) num_hot = 0;
  index.check(1, bin);
  __syncthreads();
  atomicAdd(&hot.numbers[hot.claim(static_cast<uint32_t>(bin[0]))], 1u);
  __syncthreads();
  for (uint32_t slot = threadIdx.x; slot < kHotSlots; slot += Samples) {
    if (hot.numbers[slot] < kHotFrom) continue;
    const uint32_t number = atomicAdd(&num_hot, 1u);
    if (number < max_hot) list->bins[number] = hot.bins[slot];
  }
  __syncthreads();
  if (threadIdx.x == 0) list->count = min(num_hot, max_hot);
}

// Adds a sum to memory, in parts that T can hold.
template <typename T>
__device__ __forceinline__ void add_sum(const AtomicArgs& args, T* address, Sum<T> sum) {
  for (bool more = true; more;) {
    more = false;
    atomic_add(address, from_compute<T>(take_part<T>(sum, more)),
               reinterpret_cast<const T*>(args.first_byte),
               reinterpret_cast<const T*>(args.end_byte));
  }
}

// Neighbouring lanes with equal bins are a run. If there are few runs, as in a sorted index, the
// last lane of each gets its sum. Returns whether this lane has a sum to add. All lanes take part.
template <typename S>
__device__ __forceinline__ bool sum_run(uint32_t bin, S& sum) {
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t below = __shfl_up_sync(0xffffffffu, bin, 1);
  const uint32_t heads = __ballot_sync(0xffffffffu, lane == 0 || below != bin);
  if (__popc(heads) > kWarp / 2) return true;
  const uint32_t first = 31 - __clz(static_cast<int>(heads & (~0u >> (31 - lane))));
#pragma unroll
  for (uint32_t distance = 1; distance < kWarp; distance *= 2) {
    const S other = shuffle_up(sum, distance);
    if (lane >= first + distance) sum = plus(sum, other);
  }
  return lane + 1 == kWarp || (heads >> (lane + 1) & 1) != 0;
}

// blockIdx numbers ranges of block_units units. Shared memory has room for kHotCopies copies of the
// rows of a full list.
template <typename T, int V>
__global__ __launch_bounds__(kAtomicThreads,
                             kHotBlocksPerSm) void add_with_hot_bins(const AtomicArgs args,
                                                                     uint32_t block_units,
                                                                     const HotList* list) {
  using S = Sum<T>;
  extern __shared__ uint4 hot_sums[];
  auto* sums = reinterpret_cast<S*>(hot_sums);  // [hot bin][copy][value of the row]
  __shared__ HotBins hot;
  const uint32_t width = args.units.divisor * V;
  grid_dependency_wait();
  // Load the list of frequent bins.
  const uint32_t num_hot = list->count;
  if (num_hot > 0) {
    hot.clear();
    for (uint32_t i = threadIdx.x; i < num_hot * width * kHotCopies; i += kAtomicThreads) {
      sums[i] = kNothing<S>;
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < num_hot; i += kAtomicThreads) {
      hot.numbers[hot.claim(list->bins[i])] = i;
    }
    __syncthreads();
  }

  // Add rows of frequent bins in shared memory, other rows to memory.
  const uint64_t first = uint64_t{blockIdx.x} * block_units;
  const UnitOrigin origin(args, first);
  const auto valid = static_cast<uint32_t>(min(args.total_units - first, uint64_t{block_units}));
  const auto alpha = from_scalar<S>(args.alpha);
  const auto number_of = [&](int64_t bin) {
    return num_hot > 0 ? hot.number_of(static_cast<uint32_t>(bin)) : HotBins::kNone;
  };
  for (uint32_t start = 0; start < valid; start += kAtomicThreads * kAtomicUnroll) {
    Addends<T, V, kAtomicUnroll, T> addends(args, origin, start + threadIdx.x, kAtomicThreads,
                                            valid);
    const auto sum_of = [&](int u, uint32_t number) {
      const uint32_t copy = number * kHotCopies + addends.entries[u] % kHotCopies;
      return sums + copy * width + addends.at[u];
    };
    if constexpr (V == 1 && std::is_floating_point_v<S>) {
      if (args.units.divisor == 1) {  // neighbouring lanes have neighbouring entries
#pragma unroll
        for (int u = 0; u < kAtomicUnroll; ++u) {
          uint32_t bin = HotBins::kNone;
          S sum = kNothing<S>;
          if (u < addends.count) {
            bin = static_cast<uint32_t>(addends.bins[u]);
            sum = scaled(to_compute(addends.vecs[u].values().values[0]), alpha);
          }
          if (!sum_run(bin, sum) || bin == HotBins::kNone) continue;
          const uint32_t number = number_of(bin);
          if (number == HotBins::kNone) {
            add_sum(args, addends.to[u] + bin * args.bin_stride, sum);
          } else {
            add_in_shared(sum_of(u, number), sum);
          }
        }
        continue;
      }
    }
#pragma unroll
    for (int u = 0; u < kAtomicUnroll; ++u) {
      if (u >= addends.count) break;
      const uint32_t number = number_of(addends.bins[u]);
      if (number == HotBins::kNone) {
        addends.add(args, u, alpha);
        continue;
      }
      S* sum = sum_of(u, number);
      const Vec<T, V> vec = addends.vecs[u].values();
#pragma unroll
      for (int i = 0; i < V; ++i) {
        add_in_shared(sum + i, scaled(to_compute(vec.values[i]), alpha));
      }
    }
  }
  __syncthreads();

  // Add the sums of frequent bins to self.
  for (uint32_t i = threadIdx.x; i < num_hot; i += kAtomicThreads) {
    T* row = static_cast<T*>(args.self) + list->bins[i] * args.bin_stride;
    const S* from = sums + i * width * kHotCopies;
    for (uint32_t at = 0; at < width; ++at) {
      S sum = kNothing<S>;
#pragma unroll
      for (int c = 0; c < kHotCopies; ++c) sum = plus(sum, from[c * width + at]);
      add_sum(args, row + at * args.self_inner_stride, sum);
    }
  }
}

template <typename T>
cudaError_t launch(const HotPlan& plan, Workspace& workspace, cudaStream_t stream) {
  const AtomicArgs& args = plan.args;
  auto* list = static_cast<HotList*>(workspace.allocate(sizeof(HotList)));
  const cudaError_t error = launch_kernel(find_hot_bins<kHotSamples>, plan.find, stream, args.index,
                                          args.entries, plan.hot_bins, list);
  if (error != cudaSuccess) return error;
  return with_values<T>(plan.values, [&](auto values) {
    return launch_kernel(add_with_hot_bins<T, values>, plan.add, stream, args, plan.block_units,
                         list);
  });
}

}  // namespace gpuopt::index_add
