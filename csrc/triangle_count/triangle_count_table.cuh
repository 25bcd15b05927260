// The hash table of a block, in shared memory: the targets of the sources u of its edges, a region
// for each source.
#pragma once

#include "triangle_count/triangle_count_lists.cuh"

namespace gpuopt::triangle_count {
namespace {

constexpr uint32_t kEmpty = 0xffffffffu;  // no target

// The slots of a source in the table: `slots` in the upper half, and where they begin.
struct Region {
  uint32_t packed;

  __device__ __forceinline__ uint32_t begin() const { return packed & 0xffff; }
  __device__ __forceinline__ uint32_t slots() const { return packed >> 16; }

  // Visits the slots in which a target may be, until `visit` returns true.
  template <typename Visit>
  __device__ __forceinline__ void probe(uint32_t target, Visit visit) const {
    // The multiplier is the fraction of the golden ratio.
    uint32_t slot = begin() + static_cast<uint32_t>(uint64_t{target * 0x9e3779b1u} * slots() >> 32);
    while (!visit(slot)) slot = slot + 1 == begin() + slots() ? begin() : slot + 1;
  }
};

// The entries whose targets are in the table. Lists that are longer than the table take several.
struct Piece {
  List entries;
  uint32_t factor;  // slots for each entry

  __device__ __forceinline__ List part_of(const List& list) const {
    return {max(list.begin, entries.begin), min(list.end, entries.end)};
  }
  // `part` is not empty, and of one source.
  __device__ __forceinline__ Region region_of(const List& part) const {
    return {static_cast<uint32_t>(part.length()) * factor << 16 |
            static_cast<uint32_t>(part.begin - entries.begin) * factor};
  }
};

// `edges` are the edges of the block. All threads of the block take part, and have to synchronise
// before they read the table.
template <typename Graph>
__device__ __forceinline__ void fill_table(const Graph& graph, const Piece& piece,
                                           const List& edges, uint32_t* slots) {
  for (int slot = threadIdx.x; slot < kSlots; slot += kThreads) slots[slot] = kEmpty;
  __syncthreads();
  const List& entries = piece.entries;
  for (int64_t entry = entries.begin + threadIdx.x; entry < entries.end; entry += kThreads) {
    const List part = piece.part_of(graph.list_of_u(graph.source_of(entry, edges)));
    const int32_t target = graph.targets_of_u()[entry];
    if (entry < part.begin || entry >= part.end || !graph.is_target(target)) continue;
    piece.region_of(part).probe(target, [&](uint32_t slot) {
      const uint32_t found = atomicCAS(&slots[slot], kEmpty, static_cast<uint32_t>(target));
      return found == kEmpty || found == static_cast<uint32_t>(target);
    });
  }
}

// The slot of a target, or kEmpty.
__device__ __forceinline__ uint32_t slot_of(const uint32_t* slots, Region region, uint32_t target) {
  uint32_t at = kEmpty;
  region.probe(target, [&](uint32_t slot) {
    const uint32_t found = slots[slot];
    if (found == target) at = slot;
    return found == target || found == kEmpty;
  });
  return at;
}

}  // namespace
}  // namespace gpuopt::triangle_count
