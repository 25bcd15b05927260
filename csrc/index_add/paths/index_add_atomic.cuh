// Adds every value of source to self by atomic operations: one launch, no scratch memory, sums in
// any order.
#pragma once

#include "common/atomic.cuh"
#include "common/warp.cuh"
#include "index_add/device/index_add_launch.cuh"

namespace gpuopt::index_add {

// Units are numbered in the order (outer, entry, unit of the row). A block has neighbouring units,
// from `first` on. So it divides a 64-bit number only once, and small numbers not at all.
struct UnitOrigin {
  uint32_t unit, entry, outer;

  __device__ UnitOrigin(const AtomicArgs& args, uint64_t first) {
    if (first <= kMaxIndex32) {
      auto row = static_cast<uint32_t>(first);
      unit = args.units.divmod(row);
      outer = row < args.entries ? 0 : row / args.entries;
      entry = row - outer * args.entries;
      return;
    }
    const uint64_t row = first / args.units.divisor;
    unit = static_cast<uint32_t>(first - row * args.units.divisor);
    outer = static_cast<uint32_t>(row / args.entries);
    entry = static_cast<uint32_t>(row - uint64_t{outer} * args.entries);
  }
};

// Values as another type, which holds them exactly.
template <typename To, typename T, int V>
__device__ __forceinline__ Vec<To, V> converted(const Vec<T, V>& vec) {
  if constexpr (std::is_same_v<To, T>) {
    return vec;
  } else {
    Vec<To, V> result;
#pragma unroll
    for (int i = 0; i < V; ++i) result.values[i] = from_compute<To>(to_compute(vec.values[i]));
    return result;
  }
}

// Adds a vector of values to memory.
template <typename T, int V>
__device__ __forceinline__ void add_vec(const AtomicArgs& args, T* address, const Vec<T, V>& vec) {
  if constexpr (V > 1) {
    atomic_add_vec(address, vec);
  } else {
    atomic_add(address, vec.values[0], reinterpret_cast<const T*>(args.first_byte),
               reinterpret_cast<const T*>(args.end_byte));
  }
}

// The N units of a thread, `step` apart: their values, bins and addresses. `To` is the type of
// self.
template <typename T, int V, int N, typename To>
struct Addends {
  int count;  // units that exist
  RawVec<T, V> vecs[N];
  int64_t bins[N];
  uint32_t entries[N];
  uint32_t at[N];  // position of the first value in its row
  To* to[N];       // address in bin 0

  // Loads units number, number + step, ... below `end`, counted from the origin.
  __device__ __forceinline__ Addends(const AtomicArgs& args, const UnitOrigin& origin,
                                     uint32_t number, uint32_t step, uint32_t end) {
    count = number < end
                ? static_cast<int>(min((end - number - 1) / step + 1, static_cast<uint32_t>(N)))
                : 0;
#pragma unroll
    for (int u = 0; u < N; ++u) {
      if (u >= count) break;
      uint32_t entry = origin.unit + number + u * step;
      at[u] = args.units.divmod(entry) * V;
      entry += origin.entry;
      uint32_t outer = origin.outer;
      if (entry >= args.entries) {
        outer += entry / args.entries;
        entry %= args.entries;
      }
      entries[u] = entry;
      const Offsets offsets = outer_offsets(args.outer, outer);
      vecs[u].load(static_cast<const T*>(args.source) + offsets.source + entry * args.entry_stride +
                   at[u] * args.source_inner_stride);
      to[u] = static_cast<To*>(args.self) + offsets.self + at[u] * args.self_inner_stride;
    }
    args.index.load(entries, count, bins);
    args.index.check(count, bins);
  }

  __device__ __forceinline__ Vec<To, V> values(int u) const {
    return converted<To>(vecs[u].values());
  }

  __device__ __forceinline__ void add(const AtomicArgs& args, int u, Sum<T> alpha) {
    Vec<To, V> vec = values(u);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      vec.values[i] = from_compute<To>(scaled(to_compute(vec.values[i]), alpha));
    }
    add_vec(args, to[u] + bins[u] * args.bin_stride, vec);
  }
};

// Adds sums to memory, in parts that T can hold.
template <typename T, int V>
__device__ __forceinline__ void add_sums(const AtomicArgs& args, T* address, Sums<T, V>& sums) {
  for (bool more = true; more;) add_vec(args, address, sums.take(more));
}

// Gives the sum of the lanes in `alike` to the first one, and returns whether this lane is it. All
// lanes of the warp take part. Lanes with nothing to add have an empty mask.
template <typename T, int V>
__device__ __forceinline__ bool sum_lanes(Sums<T, V>& sums, uint32_t alike) {
  const uint32_t lane = threadIdx.x % kWarp;
  const bool is_first = alike != 0 && (alike & ((1u << lane) - 1)) == 0;
  alike = is_first ? alike & ~(1u << lane) : 0;
  while (__any_sync(0xffffffffu, alike != 0)) {
    const int from = alike != 0 ? __ffs(static_cast<int>(alike)) - 1 : static_cast<int>(lane);
    const Sums<T, V> other = shuffle_from(sums, from);
    if (alike != 0) sums.add(other);
    alike &= alike - 1;
  }
  return is_first;
}

// The lanes with the same address as this lane. All lanes take part.
__device__ __forceinline__ uint32_t lanes_alike(const void* address, bool valid) {
  const auto bits = reinterpret_cast<uint64_t>(address);
  const uint32_t alike = __match_any_sync(0xffffffffu, static_cast<uint32_t>(bits)) &
                         __match_any_sync(0xffffffffu, static_cast<uint32_t>(bits >> 32)) &
                         __ballot_sync(0xffffffffu, valid);
  return valid ? alike : 0;
}

// blockIdx numbers ranges of block_units units. Vectors of a warp with one destination become one
// addition, because additions to one row take 2.4 ns each on an H200.
template <typename T, int V, typename To>
__global__ __launch_bounds__(kAtomicThreads, 4) void add_atomically(const AtomicArgs args,
                                                                    uint32_t block_units) {
  const uint64_t first = uint64_t{blockIdx.x} * block_units;
  const auto end = static_cast<uint32_t>(min(args.total_units - first, uint64_t{block_units}));
  const UnitOrigin origin(args, first);
  grid_dependency_wait();
  Addends<T, V, kAtomicUnroll, To> addends(args, origin, threadIdx.x, kAtomicThreads, end);
  launch_dependents();
  const auto alpha = from_scalar<Sum<T>>(args.alpha);
#pragma unroll
  for (int u = 0; u < kAtomicUnroll; ++u) {
    if constexpr (V * sizeof(T) == kAccessBytes && V > 1) {
      if (u * kAtomicThreads >= block_units) break;
      const bool valid = u < addends.count;
      To* address = valid ? addends.to[u] + addends.bins[u] * args.bin_stride : nullptr;
      Sums<To, V> sums;
      if (valid) sums.add(addends.values(u), alpha);
      if (sum_lanes(sums, lanes_alike(address, valid))) add_sums(args, address, sums);
    } else {
      if (u < addends.count) addends.add(args, u, alpha);
    }
  }
}

// ---------------------------------------------------------------- sums of a block

// Sums in shared memory of destinations that many units of a block have. A destination is the
// number of a unit of self. Open addressing: a third of the block's units are destinations at most,
// so slots stay free.
template <typename T, int V>
struct BlockSums {
  static constexpr uint32_t kNone = ~0u;
  static constexpr int kSlotBits = 9, kSlots = 1 << kSlotBits;
  static_assert(kAtomicThreads * kAtomicUnroll / kAggregateFrom < kSlots);
  uint32_t destinations[kSlots];
  Sum<T> sums[kSlots * V];
  bool in_use;  // a destination has a slot

  __device__ static uint32_t slot_of(uint32_t destination) {
    return destination * 2654435761u >> (32 - kSlotBits);
  }

  __device__ __forceinline__ void clear() {
    if (threadIdx.x == 0) in_use = false;
    for (uint32_t i = threadIdx.x; i < kSlots; i += kAtomicThreads) destinations[i] = kNone;
    for (uint32_t i = threadIdx.x; i < kSlots * V; i += kAtomicThreads) sums[i] = kNothing<Sum<T>>;
  }

  // Makes a slot for a destination.
  __device__ __forceinline__ void claim(uint32_t destination) {
    in_use = true;
    for (uint32_t slot = slot_of(destination);; slot = (slot + 1) % kSlots) {
      const uint32_t before = atomicCAS(&destinations[slot], kNone, destination);
      if (before == kNone || before == destination) return;
    }
  }

  // Adds to the slot of a destination. Returns whether it has one.
  __device__ __forceinline__ bool add(uint32_t destination, const Sums<T, V>& own) {
    for (uint32_t slot = slot_of(destination);; slot = (slot + 1) % kSlots) {
      if (destinations[slot] == kNone) return false;
      if (destinations[slot] != destination) continue;
#pragma unroll
      for (int i = 0; i < V; ++i) add_in_shared(&sums[slot * V + i], own.values[i]);
      return true;
    }
  }
};

// The same for units of less than 16 bytes. If no warp of a block has several first units with one
// destination, each unit is added by itself. Otherwise warps sum the units with one destination,
// and the block sums all units with a destination that a warp has several times.
template <typename T, int V, typename To>
__global__ __launch_bounds__(kAtomicThreads, 4) void add_block_sums(const AtomicArgs args,
                                                                    uint32_t block_units) {
  using Table = BlockSums<To, V>;
  __shared__ Table table;
  const uint64_t first = uint64_t{blockIdx.x} * block_units;
  const auto end = static_cast<uint32_t>(min(args.total_units - first, uint64_t{block_units}));
  const UnitOrigin origin(args, first);
  grid_dependency_wait();
  Addends<T, V, kAtomicUnroll, To> addends(args, origin, threadIdx.x, kAtomicThreads, end);
  launch_dependents();
  To* const self = reinterpret_cast<To*>(args.first_byte);
  const auto alpha = from_scalar<Sum<T>>(args.alpha);
  const auto destination_of = [&](int u) {
    if (u >= addends.count) return Table::kNone;
    const To* address = addends.to[u] + addends.bins[u] * args.bin_stride;
    return static_cast<uint32_t>(static_cast<uint64_t>(address - self) / V);
  };
  const auto lanes_of = [&](uint32_t destination) {
    const uint32_t alike = __match_any_sync(0xffffffffu, destination);
    return destination == Table::kNone ? 0 : alike;
  };
  const auto are_several = [](uint32_t lanes) {
    return __popc(lanes) >= static_cast<int>(kAggregateFrom);
  };
  if (!__syncthreads_or(are_several(lanes_of(destination_of(0))))) {
#pragma unroll
    for (int u = 0; u < kAtomicUnroll; ++u) {
      if (u < addends.count) addends.add(args, u, alpha);
    }
    return;
  }
  table.clear();
  __syncthreads();

  // Sum the units of a warp with one destination.
  Sums<To, V> sums[kAtomicUnroll];
  uint32_t destinations[kAtomicUnroll];
#pragma unroll
  for (int u = 0; u < kAtomicUnroll; ++u) {
    destinations[u] = Table::kNone;
    if (u * kAtomicThreads >= block_units) continue;
    destinations[u] = destination_of(u);
    if (u < addends.count) sums[u].add(addends.values(u), alpha);
    const uint32_t alike = lanes_of(destinations[u]);
    if (!sum_lanes(sums[u], alike)) {
      destinations[u] = Table::kNone;
    } else if (are_several(alike)) {
      table.claim(destinations[u]);
    }
  }
  __syncthreads();

  // Add each sum to the block's, or to memory.
  const bool in_use = table.in_use;
#pragma unroll
  for (int u = 0; u < kAtomicUnroll; ++u) {
    if (destinations[u] == Table::kNone) continue;
    if (in_use && table.add(destinations[u], sums[u])) continue;
    add_sums(args, self + int64_t{destinations[u]} * V, sums[u]);
  }
  if (!in_use) return;
  __syncthreads();
  for (uint32_t slot = threadIdx.x; slot < Table::kSlots; slot += kAtomicThreads) {
    if (table.destinations[slot] == Table::kNone) continue;
    Sums<To, V> total;
#pragma unroll
    for (int i = 0; i < V; ++i) total.values[i] = table.sums[slot * V + i];
    add_sums(args, self + int64_t{table.destinations[slot]} * V, total);
  }
}

template <typename T, typename To>
cudaError_t launch_atomic(const AtomicPlan& plan, cudaStream_t stream) {
  return with_values<T>(plan.values, [&](auto values) {
    if constexpr (sizeof(T) * values < kAccessBytes && !std::is_same_v<T, Bool>) {
      if (plan.block_sums) {
        return launch_kernel(add_block_sums<T, values, To>, plan.shape, stream, plan.args,
                             plan.block_units);
      }
    }
    return launch_kernel(add_atomically<T, values, To>, plan.shape, stream, plan.args,
                         plan.block_units);
  });
}

template <typename T>
cudaError_t launch(const AtomicPlan& plan, Workspace&, cudaStream_t stream) {
  if constexpr (kIsHalf<T>) {
    if (plan.wide_self) return launch_atomic<T, float>(plan, stream);
  }
  return launch_atomic<T, T>(plan, stream);
}

}  // namespace gpuopt::index_add
