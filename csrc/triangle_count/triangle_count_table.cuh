// A hash table in shared memory: some targets of a vertex. The threads of a team share it.
#pragma once

#include "common/warp.cuh"
#include "triangle_count/triangle_count.h"

namespace gpuopt::triangle_count {
namespace {

constexpr uint32_t kEmpty = 0xffffffffu;  // no target

// Threads that count the triangles of a vertex together: a warp, or the whole block.
template <unsigned kSize>
struct Team {
  static constexpr unsigned kThreads = kSize;
  static constexpr unsigned kWarps = kSize / kWarp;

  static __device__ __forceinline__ unsigned thread() { return threadIdx.x % kSize; }
  static __device__ __forceinline__ unsigned warp() { return thread() / kWarp; }
  static __device__ __forceinline__ void sync() {
    if constexpr (kSize == kWarp) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  }
};

// Three of four slots, or more, are empty, so few lookups meet a collision: one slow lookup delays
// all threads of its warp. The number of slots is a power of two.
struct Table {
  uint32_t* slots;
  uint32_t mask;   // slots - 1
  uint32_t shift;  // 32 - log2(slots)

  static __device__ __forceinline__ Table of(uint32_t* slots, uint32_t targets) {
    const uint32_t shift = __clz(static_cast<int>(targets * kSlotsPerTarget - 1));
    return {slots, 0xffffffffu >> shift, shift};
  }

  // Visits the slots in which a target may be, until `visit` returns true.
  template <typename Visit>
  __device__ __forceinline__ void probe(uint32_t target, Visit visit) const {
    // The multiplier is the fraction of the golden ratio.
    uint32_t slot = target * 0x9e3779b1u >> shift;
    while (!visit(slot)) slot = (slot + 1) & mask;
  }

  // The threads of the team have to synchronise before and after.
  template <typename Team>
  __device__ __forceinline__ void clear() const {
    for (uint32_t slot = Team::thread(); slot <= mask; slot += Team::kThreads) slots[slot] = kEmpty;
  }
  __device__ __forceinline__ void insert(uint32_t target) const {
    probe(target, [&](uint32_t slot) {
      const uint32_t found = atomicCAS(slots + slot, kEmpty, target);
      return found == kEmpty || found == target;
    });
  }
  // The slot of a target, or kEmpty.
  __device__ __forceinline__ uint32_t find(uint32_t target) const {
    uint32_t at = kEmpty;
    probe(target, [&](uint32_t slot) {
      const uint32_t found = slots[slot];
      if (found == target) at = slot;
      return found == target || found == kEmpty;
    });
    return at;
  }
};

}  // namespace
}  // namespace gpuopt::triangle_count
