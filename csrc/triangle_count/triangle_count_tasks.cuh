// The work of a block: its edges that have something to count, and how their items are dealt to
// the threads of the block.
#pragma once

#include "common/warp.cuh"
#include "triangle_count/triangle_count_table.cuh"

namespace gpuopt::triangle_count {
namespace {

constexpr int kWarps = kThreads / kWarp;
constexpr int kOwnEdges = kBlockEdges / kThreads;  // edges of a thread
// A step of a binary search costs as much as this many lookups in the table.
constexpr int64_t kStepLookups = 4;

// Edges that have items, in arrays. An edge (u, v) of a task looks up targets of v in the region of
// u, or searches for targets of u in the list of v.
struct Tasks {
  uint32_t first[kBlockEdges];   // item
  int64_t items[kBlockEdges];    // where the first item is among the targets, minus `first`
  Region region[kBlockEdges];    // of u
  int64_t list[kBlockEdges];     // of v, if it is searched
  uint32_t length[kBlockEdges];  // of this list
  uint16_t edge[kBlockEdges];    // counted from the first edge of the block
};

template <bool kPerVertex>
struct Shared {
  Tasks tasks;
  uint32_t slots[kSlots];
  uint32_t hits[kPerVertex ? kSlots : 1];            // of each slot
  uint32_t edge_hits[kPerVertex ? kBlockEdges : 1];  // of each edge
  uint32_t sums[2][kWarps];
  unsigned long long count;
};

// An edge of a thread.
struct Work {
  List of_v;      // the targets of v that may match
  List few;       // the targets of u that may match
  Region region;  // of u
  uint32_t items;
  bool searches;
};

template <typename Graph>
__device__ __forceinline__ Work work_of(const Graph& graph, const Piece& piece, int64_t edge) {
  Work work = {};
  const List of_u = graph.list_of_u(graph.sources()[edge]), part = piece.part_of(of_u);
  work.few = {graph.behind(edge, part.begin), part.end};
  if (work.few.length() <= 0) return work;
  work.of_v = graph.list_of_v(graph.targets()[edge]);
  if (part.length() < of_u.length()) {  // the table holds some of the targets only
    const int32_t* targets = graph.targets_of_u();
    const int32_t least = targets[work.few.begin], most = targets[work.few.end - 1];
    work.of_v.begin = find(graph.targets_of_v(), work.of_v, least);
    work.of_v.end = find(graph.targets_of_v(), work.of_v, most + 1);
  }
  const int64_t length = work.of_v.length(), few = work.few.length();
  if (length <= 0) return work;
  const int steps = 32 - __clz(static_cast<int>(length));
  work.region = piece.region_of(part);
  work.searches = length > few * steps * kStepLookups;
  work.items = static_cast<uint32_t>(work.searches ? few : length);
  return work;
}

struct Totals {
  uint32_t tasks, items;
};

// Lists the edges that search, or the edges that look up.
template <bool kPerVertex>
__device__ __forceinline__ Totals write_tasks(const Work (&work)[kOwnEdges], bool searching,
                                              Shared<kPerVertex>& shared) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  Totals own = {};
  for (const Work& each : work) {
    const bool counts = each.items > 0 && each.searches == searching;
    own.tasks += counts;
    own.items += counts ? each.items : 0;
  }
  Totals at = {warp_sum_up(own.tasks), warp_sum_up(own.items)};
  if (lane == kWarp - 1) {
    shared.sums[0][warp] = at.tasks;
    shared.sums[1][warp] = at.items;
  }
  __syncthreads();
  at = {at.tasks - own.tasks, at.items - own.items};
  Totals all = {};
  for (int other = 0; other < kWarps; ++other) {
    const Totals sums = {shared.sums[0][other], shared.sums[1][other]};
    at.tasks += other < warp ? sums.tasks : 0;
    at.items += other < warp ? sums.items : 0;
    all.tasks += sums.tasks;
    all.items += sums.items;
  }
#pragma unroll
  for (int i = 0; i < kOwnEdges; ++i) {
    const Work& each = work[i];
    if (each.items == 0 || each.searches != searching) continue;
    Tasks& tasks = shared.tasks;
    tasks.first[at.tasks] = at.items;
    tasks.items[at.tasks] = (searching ? each.few.begin : each.of_v.begin) - at.items;
    tasks.region[at.tasks] = each.region;
    tasks.list[at.tasks] = each.of_v.begin;
    tasks.length[at.tasks] = static_cast<uint32_t>(each.of_v.length());
    tasks.edge[at.tasks] = static_cast<uint16_t>(threadIdx.x + i * kThreads);
    at.items += each.items;
    ++at.tasks;
  }
  __syncthreads();
  return all;
}

__device__ __forceinline__ uint32_t or_of_warp(uint32_t bits) {
#if __CUDA_ARCH__ >= 800
  return __reduce_or_sync(0xffffffffu, bits);
#else
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) bits |= __shfl_xor_sync(0xffffffffu, bits, mask);
  return bits;
#endif
}

// The task of each lane's item, where the items of a warp are `item` and the next 31, and `task` is
// the task of the first. Then moves `task` to the item behind them. All lanes take part.
__device__ __forceinline__ uint32_t next_tasks(const Tasks& tasks, uint32_t count, uint32_t item,
                                               uint32_t& task) {
  const uint32_t lane = threadIdx.x % kWarp, other = task + 1 + lane;
  const uint32_t distance = other < count ? tasks.first[other] - item : kEmpty;
  const uint32_t starts = or_of_warp(distance < kWarp ? 1u << distance : 0);
  const uint32_t own = task + __popc(starts & (0xffffffffu >> (kWarp - 1 - lane)));
  task += __popc(__ballot_sync(0xffffffffu, distance <= kWarp));
  return own;
}

}  // namespace
}  // namespace gpuopt::triangle_count
