// The work of a block: its edges that have something to count.
#pragma once

#include "common/warp.cuh"
#include "triangle_count/triangle_count_table.cuh"

namespace gpuopt::triangle_count {
namespace {

constexpr int kWarps = kThreads / kWarp;
constexpr int kOwnEdges = kBlockEdges / kThreads;  // edges of a thread
// A step of a binary search costs as much as this many lookups in the table.
constexpr int64_t kStepLookups = 2;

// Edges that have items, in arrays. An edge (u, v) of a task looks up targets of v in the region of
// u, or searches for targets of u in the list of v.
struct Tasks {
  int64_t items[kBlockEdges];    // where they begin among the targets
  uint32_t count[kBlockEdges];   // of the items
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
  uint32_t sums[kWarps];
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

// Lists the edges that search, or the edges that look up. Returns their number.
template <bool kPerVertex>
__device__ __forceinline__ uint32_t write_tasks(const Work (&work)[kOwnEdges], bool searching,
                                                Shared<kPerVertex>& shared) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  uint32_t own = 0;
  for (const Work& each : work) own += each.items > 0 && each.searches == searching;
  const uint32_t up = warp_sum_up(own);
  if (lane == kWarp - 1) shared.sums[warp] = up;
  __syncthreads();
  uint32_t at = up - own, all = 0;
  for (int other = 0; other < kWarps; ++other) {
    at += other < warp ? shared.sums[other] : 0;
    all += shared.sums[other];
  }
#pragma unroll
  for (int i = 0; i < kOwnEdges; ++i) {
    const Work& each = work[i];
    if (each.items == 0 || each.searches != searching) continue;
    Tasks& tasks = shared.tasks;
    tasks.items[at] = searching ? each.few.begin : each.of_v.begin;
    tasks.count[at] = each.items;
    tasks.region[at] = each.region;
    tasks.list[at] = each.of_v.begin;
    tasks.length[at] = static_cast<uint32_t>(each.of_v.length());
    tasks.edge[at] = static_cast<uint16_t>(threadIdx.x + i * kThreads);
    ++at;
  }
  __syncthreads();
  return all;
}

}  // namespace
}  // namespace gpuopt::triangle_count
