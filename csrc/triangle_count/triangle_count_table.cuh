// A hash table in shared memory: some targets of a vertex. The threads of a team share it.
#pragma once

#include "common/warp.cuh"
#include "triangle_count/triangle_count.h"

namespace gpuopt::triangle_count {
namespace {

// No target has these numbers.
constexpr uint32_t kEmpty = 0xffffffffu, kNone = 0xfffffffeu;
constexpr int kMostMoves = 24;

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

// Cuckoo hashing (R. Pagh and F. Rodler, 2004): a target is in one of two slots. So a lookup reads
// two slots, whatever the targets are, and no thread of a warp waits for another one. At most a
// quarter of the slots have targets. Their number is a power of two.
struct Table {
  uint32_t* slots;
  uint32_t shift;  // 32 - log2(slots)

  static __device__ __forceinline__ Table of(uint32_t* slots, uint32_t targets) {
    return {slots, static_cast<uint32_t>(__clz(static_cast<int>(targets * kSlotsPerTarget - 1)))};
  }

  __device__ __forceinline__ uint32_t size() const { return (0xffffffffu >> shift) + 1; }
  __device__ __forceinline__ uint32_t one(uint32_t target) const {
    return target * 0x9e3779b1u >> shift;
  }
  __device__ __forceinline__ uint32_t other(uint32_t target) const {
    return target * 0x85ebca6bu >> shift;
  }

  // A target takes its slot from the target there, which then takes its other slot, and so on.
  // Returns false if a target is left without a slot: one table in a thousand fails.
  __device__ __forceinline__ bool insert(uint32_t target) const {
    uint32_t slot = one(target);
    for (int move = 0; move < kMostMoves; ++move) {
      target = atomicExch(slots + slot, target);
      if (target == kEmpty) return true;
      slot = slot == one(target) ? other(target) : one(target);
    }
    return false;
  }
  // The slot of a target, or kEmpty.
  __device__ __forceinline__ uint32_t find(uint32_t target) const {
    const uint32_t first = one(target), second = other(target);
    const bool is_first = slots[first] == target, is_second = slots[second] == target;
    return is_first ? first : is_second ? second : kEmpty;
  }
};

}  // namespace
}  // namespace gpuopt::triangle_count
