// Every value of source is added to self in memory: one launch, no scratch memory, sums in any order.
#pragma once

#include "common/atomic.cuh"
#include "common/launch.cuh"
#include "index_add/index_add_values.cuh"

namespace gpuopt::index_add {

struct AtomicArgs {
  void* self = nullptr;
  const void* source = nullptr;
  Index index;
  uint64_t first_byte = 0, end_byte = 0;  // of self's elements
  int64_t bin_stride = 0;
  int64_t entry_stride = 0;
  int64_t self_inner_stride = 0;
  int64_t source_inner_stride = 0;
  uint32_t entries = 0;
  FastDiv units;  // of a row
  OuterDims outer;
  uint64_t total_units = 0;
  ScalarValue alpha;
};

// Units are numbered (outer, entry, unit of the row). A block has neighbouring ones, from `first` on,
// so that it divides 64-bit numbers but once.
struct UnitOrigin {
  uint32_t unit, entry, outer;

  __device__ UnitOrigin(const AtomicArgs& args, uint64_t first) {
    const uint64_t row = first / args.units.divisor;
    unit = static_cast<uint32_t>(first - row * args.units.divisor);
    outer = static_cast<uint32_t>(row / args.entries);
    entry = static_cast<uint32_t>(row - uint64_t{outer} * args.entries);
  }
};

// What is added, and where.
template <typename T, int V>
struct Addend {
  Pack<T, V> pack;
  T* to;

  // Unit `number` from the origin on. Returns its entry; *at becomes its first value's place in the row.
  __device__ __forceinline__ uint32_t load(const AtomicArgs& args, const UnitOrigin& origin,
                                           uint32_t number, int64_t* bin, uint32_t* at) {
    uint32_t entry = origin.unit + number;
    *at = args.units.divmod(entry) * V;
    entry += origin.entry;
    uint32_t outer = origin.outer;
    if (entry >= args.entries) {
      outer += entry / args.entries;
      entry %= args.entries;
    }
    const Offsets offsets = outer_offsets(args.outer, outer);
    pack = load_pack<T, V>(static_cast<const T*>(args.source) + offsets.source +
                           entry * args.entry_stride + *at * args.source_inner_stride);
    *bin = args.index(entry);
    to = static_cast<T*>(args.self) + offsets.self + *bin * args.bin_stride +
         *at * args.self_inner_stride;
    return entry;
  }

  __device__ __forceinline__ void add(const AtomicArgs& args, Sum<T> alpha) {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      pack.values[i] = from_compute<T>(scaled(to_compute(pack.values[i]), alpha));
    }
    if constexpr (V > 1) {
      atomic_add_pack(to, pack);
    } else {
      atomic_add(to, pack.values[0], reinterpret_cast<const T*>(args.first_byte),
                 reinterpret_cast<const T*>(args.end_byte));
    }
  }
};

template <typename T, int V>
__global__ __launch_bounds__(kAtomicThreads, 4) void add_atomically(const AtomicArgs args) {
  constexpr uint32_t kBlockUnits = kAtomicThreads * kAtomicUnroll;
  const uint64_t first = uint64_t{blockIdx.x} * kBlockUnits;
  const UnitOrigin origin(args, first);
  const auto valid = static_cast<uint32_t>(min(args.total_units - first, uint64_t{kBlockUnits}));
  const auto alpha = from_scalar<Sum<T>>(args.alpha);
  Addend<T, V> addends[kAtomicUnroll];
#pragma unroll
  for (int u = 0; u < kAtomicUnroll; ++u) {
    const uint32_t number = u * kAtomicThreads + threadIdx.x;
    if (number >= valid) break;
    int64_t bin;
    uint32_t at;
    addends[u].load(args, origin, number, &bin, &at);
  }
#pragma unroll
  for (int u = 0; u < kAtomicUnroll; ++u) {
    if (u * kAtomicThreads + threadIdx.x >= valid) break;
    addends[u].add(args, alpha);
  }
}

}  // namespace gpuopt::index_add
