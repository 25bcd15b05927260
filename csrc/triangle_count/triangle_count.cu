// Counts triangles. A triangle of ranks u < v < w is an edge (u, v) whose ends both have an edge to
// w. A block has kBlockEdges neighbouring edges (u, v). It puts the targets of their sources into a
// hash table in shared memory, a region for each source, and looks up the targets of each v:
//
//   edges    | u0: v v v | u1: v v v v v v | u2: v v (v v v)   (): of the next block
//   table    | region 0  |    region 1     |    region 2   |
//   items    | targets of the first v | targets of the second v | ...
//
// The items of all edges form one list. Its equal windows are equal work for the warps of the
// block, however long the lists are. Where u has few targets behind v, and v has many, the items
// are the few: a binary search finds each among the targets of v.
#include "common/launch.cuh"
#include "common/warp.cuh"
#include "triangle_count/triangle_count.h"

namespace gpuopt::triangle_count {
namespace {

constexpr uint32_t kEmpty = 0xffffffffu;  // no rank
constexpr int kWarps = kThreads / kWarp;
constexpr int kOwnEdges = kBlockEdges / kThreads;  // edges of a thread
constexpr int kUnroll = 4;                         // items of a thread in flight
// A step of a binary search costs as much as this many lookups in the table.
constexpr int64_t kStepLookups = 4;

// Neighbouring edges.
struct List {
  int64_t begin, end;

  __device__ __forceinline__ int64_t length() const { return end - begin; }
};

__device__ __forceinline__ bool is_rank(const Oriented& graph, int32_t rank) {
  return static_cast<uint32_t>(rank) < static_cast<uint32_t>(graph.vertices);
}

// The edges of a source.
__device__ __forceinline__ List list_of(const Oriented& graph, int32_t source) {
  if (!is_rank(graph, source)) return {0, 0};
  return {graph.ptr[source], graph.ptr[source + 1]};
}

// The first edge of a list whose target is not below `rank`.
__device__ __forceinline__ int64_t find(const Oriented& graph, List list, int32_t rank) {
  while (list.begin < list.end) {
    const int64_t middle = (list.begin + list.end) / 2;
    if (graph.target[middle] < rank) {
      list.begin = middle + 1;
    } else {
      list.end = middle;
    }
  }
  return list.begin;
}

// The slots of a source in the table: `slots` in the upper half, and where they begin.
struct Region {
  uint32_t packed;

  __device__ __forceinline__ uint32_t begin() const { return packed & 0xffff; }
  __device__ __forceinline__ uint32_t slots() const { return packed >> 16; }

  // Visits the slots in which a rank may be, until `visit` returns true.
  template <typename Visit>
  __device__ __forceinline__ void probe(uint32_t rank, Visit visit) const {
    // The multiplier is the fraction of the golden ratio.
    uint32_t slot = begin() + static_cast<uint32_t>(uint64_t{rank * 0x9e3779b1u} * slots() >> 32);
    while (!visit(slot)) slot = slot + 1 == begin() + slots() ? begin() : slot + 1;
  }
};

// The edges whose targets are in the table. Lists that are longer than the table take several.
struct Piece {
  List edges;
  uint32_t factor;  // slots for each edge

  __device__ __forceinline__ List part_of(const List& list) const {
    return {max(list.begin, edges.begin), min(list.end, edges.end)};
  }
  // `part` is not empty, and of one source.
  __device__ __forceinline__ Region region_of(const List& part) const {
    return {static_cast<uint32_t>(part.length()) * factor << 16 |
            static_cast<uint32_t>(part.begin - edges.begin) * factor};
  }
};

// Edges that have items, in arrays. An edge (u, v) of a task looks up targets of v in the region of
// u, or searches for targets of u in the list of v.
struct Tasks {
  uint32_t first[kBlockEdges];   // item
  int64_t items[kBlockEdges];    // where the first item is in graph.target, minus `first`
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
  List few;       // the targets of u behind v
  Region region;  // of u
  uint32_t items;
  bool searches;
};

__device__ __forceinline__ Work work_of(const Oriented& graph, const Piece& piece, int64_t edge) {
  Work work = {};
  const List of_u = list_of(graph, graph.source[edge]), part = piece.part_of(of_u);
  work.few = {max(edge + 1, part.begin), part.end};
  if (work.few.length() <= 0) return work;
  work.of_v = list_of(graph, graph.target[edge]);
  if (part.length() < of_u.length()) {  // the table holds some of the ranks only
    const int32_t least = graph.target[work.few.begin], most = graph.target[work.few.end - 1];
    work.of_v.begin = find(graph, work.of_v, least);
    work.of_v.end = find(graph, work.of_v, most + 1);
  }
  const int64_t length = work.of_v.length(), few = work.few.length();
  if (length <= 0) return work;
  const int steps = 32 - __clz(static_cast<int>(length));
  work.region = piece.region_of(part);
  work.searches = length > few * steps * kStepLookups;
  work.items = static_cast<uint32_t>(work.searches ? few : length);
  return work;
}

template <bool kPerVertex>
__device__ __forceinline__ void fill_table(const Oriented& graph, const Piece& piece,
                                           Shared<kPerVertex>& shared) {
  for (int slot = threadIdx.x; slot < kSlots; slot += kThreads) {
    shared.slots[slot] = kEmpty;
    if constexpr (kPerVertex) shared.hits[slot] = 0;
  }
  __syncthreads();
  for (int64_t edge = piece.edges.begin + threadIdx.x; edge < piece.edges.end; edge += kThreads) {
    const List part = piece.part_of(list_of(graph, graph.source[edge]));
    const int32_t rank = graph.target[edge];
    if (edge < part.begin || edge >= part.end || !is_rank(graph, rank)) continue;
    piece.region_of(part).probe(rank, [&](uint32_t slot) {
      const uint32_t found = atomicCAS(&shared.slots[slot], kEmpty, static_cast<uint32_t>(rank));
      return found == kEmpty || found == static_cast<uint32_t>(rank);
    });
  }
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

// The slot of a rank, or kEmpty.
__device__ __forceinline__ uint32_t slot_of(const uint32_t* slots, Region region, uint32_t rank) {
  uint32_t at = kEmpty;
  region.probe(rank, [&](uint32_t slot) {
    const uint32_t found = slots[slot];
    if (found == rank) at = slot;
    return found == rank || found == kEmpty;
  });
  return at;
}

// The number of matches among the items of a thread. A warp has a window of neighbouring items.
template <bool kPerVertex, bool kSearches>
__device__ __forceinline__ uint32_t count_matches(const Oriented& graph, Totals all,
                                                  Shared<kPerVertex>& shared) {
  const Tasks& tasks = shared.tasks;
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const uint32_t window = (all.items + kThreads - 1) / kThreads * kWarp;
  const uint32_t begin = warp * window, end = min(begin + window, all.items);
  uint32_t task = 0, behind = all.tasks;  // the last task that begins at `begin` or before
  while (behind - task > 1) {
    const uint32_t middle = (task + behind) / 2;
    (tasks.first[middle] <= begin ? task : behind) = middle;
  }
  uint32_t matches = 0;
  for (uint32_t item = begin; item < end; item += kWarp * kUnroll) {
    uint32_t own[kUnroll];
    int32_t ranks[kUnroll];
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) {
      const uint32_t first = item + k * kWarp;
      own[k] = next_tasks(tasks, all.tasks, first, task);
      ranks[k] = first + lane < end ? graph.target[tasks.items[own[k]] + first + lane] : -1;
    }
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) {
      if (!is_rank(graph, ranks[k])) continue;
      const Region region = tasks.region[own[k]];
      const auto rank = static_cast<uint32_t>(ranks[k]);
      uint32_t slot = kEmpty;
      if constexpr (kSearches) {
        const List list = {tasks.list[own[k]], tasks.list[own[k]] + tasks.length[own[k]]};
        const int64_t at = find(graph, list, ranks[k]);
        const bool is_there = at < list.end && graph.target[at] == ranks[k];
        if (is_there) slot = kPerVertex ? slot_of(shared.slots, region, rank) : 0;
      } else {
        slot = slot_of(shared.slots, region, rank);
      }
      if (slot == kEmpty) continue;
      ++matches;
      if constexpr (kPerVertex) {
        atomicAdd(&shared.hits[slot], 1u);
        atomicAdd(&shared.edge_hits[tasks.edge[own[k]]], 1u);
      }
    }
  }
  return matches;
}

__device__ __forceinline__ void add(uint64_t* count, uint32_t triangles) {
  atomicAdd(reinterpret_cast<unsigned long long*>(count),
            static_cast<unsigned long long>(triangles));
}

// Adds the triangles of each rank w that the table holds.
__device__ __forceinline__ void add_slots(const Oriented& graph, const Shared<true>& shared,
                                          uint64_t* count) {
  for (int slot = threadIdx.x; slot < kSlots; slot += kThreads) {
    if (shared.hits[slot] > 0) add(count + graph.order[shared.slots[slot]], shared.hits[slot]);
  }
}

// Adds the triangles of u and v.
__device__ __forceinline__ void add_edges(const Oriented& graph, const Shared<true>& shared,
                                          const List& edges, uint64_t* count) {
  for (int64_t edge = edges.begin + threadIdx.x; edge < edges.end; edge += kThreads) {
    const uint32_t hits = shared.edge_hits[edge - edges.begin];
    if (hits == 0) continue;
    add(count + graph.order[graph.source[edge]], hits);
    add(count + graph.order[graph.target[edge]], hits);
  }
}

template <bool kPerVertex>
__global__ __launch_bounds__(kThreads) void count_triangles(const Oriented graph, uint64_t* count) {
  __shared__ Shared<kPerVertex> shared;
  const int64_t edges = graph.ptr[graph.vertices];
  const int64_t blocks = (edges + kBlockEdges - 1) / kBlockEdges;
  if (blockIdx.x >= blocks) return;
  // The highest ranks have the longest lists, so the blocks that start first have them.
  List own;
  own.begin = (blocks - 1 - blockIdx.x) * kBlockEdges;
  own.end = min(own.begin + kBlockEdges, edges);
  const int64_t lists_end = max(own.end, list_of(graph, graph.source[own.end - 1]).end);
  if (threadIdx.x == 0) shared.count = 0;
  if constexpr (kPerVertex) {
    for (int i = threadIdx.x; i < kBlockEdges; i += kThreads) shared.edge_hits[i] = 0;
  }
  uint64_t matches = 0;
  for (int64_t begin = own.begin; begin < lists_end; begin += kTableEdges) {
    const int64_t length = min(int64_t{kTableEdges}, lists_end - begin);
    const Piece piece = {{begin, begin + length}, kSlots / static_cast<uint32_t>(length)};
    fill_table(graph, piece, shared);
    Work work[kOwnEdges];
#pragma unroll
    for (int i = 0; i < kOwnEdges; ++i) {
      const int64_t edge = own.begin + threadIdx.x + i * kThreads;
      work[i] = edge < own.end ? work_of(graph, piece, edge) : Work{};
    }
    matches += count_matches<kPerVertex, false>(graph, write_tasks(work, false, shared), shared);
    __syncthreads();
    matches += count_matches<kPerVertex, true>(graph, write_tasks(work, true, shared), shared);
    __syncthreads();
    if constexpr (kPerVertex) {
      add_slots(graph, shared, count);
      __syncthreads();
    }
  }
  if constexpr (kPerVertex) {
    add_edges(graph, shared, own, count);
  } else {
#pragma unroll
    for (int mask = kWarp / 2; mask > 0; mask /= 2) matches += shuffle_xor(matches, mask);
    if (threadIdx.x % kWarp == 0) {
      atomicAdd(&shared.count, static_cast<unsigned long long>(matches));
    }
    __syncthreads();
    if (threadIdx.x == 0 && shared.count > 0) {
      atomicAdd(reinterpret_cast<unsigned long long*>(count), shared.count);
    }
  }
}

}  // namespace

cudaError_t launch(const CountPlan& plan, cudaStream_t stream) {
  const auto kernel = plan.per_vertex ? count_triangles<true> : count_triangles<false>;
  return launch_kernel(kernel, plan.shape, stream, plan.graph, plan.count);
}

}  // namespace gpuopt::triangle_count
