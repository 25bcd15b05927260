// Counts triangles. A triangle of ranks u < v < w is an edge (u, v) whose ends both have an edge to
// w. A block has kBlockEdges neighbouring edges (u, v). It puts the targets of their sources into a
// hash table in shared memory, a region for each source, and looks up the targets of each v:
//
//   edges    | u0: v v v | u1: v v v v v v | u2: v v (v v v)   (): of the next block
//   table    | region 0  |    region 1     |    region 2   |
//
// Warps take turns at the edges, and neighbouring threads read neighbouring items. Where u has few
// targets behind v, and v has many, the items are the few: a binary search finds each among the
// targets of v.
//
// In a partitioned graph, the edges, the targets of u and the targets of v come from three blocks.
#include "common/launch.cuh"
#include "triangle_count/triangle_count_tasks.cuh"

namespace gpuopt::triangle_count {
namespace {

constexpr uint32_t kUnroll = 2;  // items of a thread in flight

// The number of matches among the items of a thread.
template <bool kPerVertex, bool kSearches, typename Graph>
__device__ __forceinline__ uint32_t count_matches(const Graph& graph, uint32_t count_of_tasks,
                                                  Shared<kPerVertex>& shared) {
  const Tasks& tasks = shared.tasks;
  uint32_t matches = 0;
  for (uint32_t task = threadIdx.x / kWarp; task < count_of_tasks; task += kWarps) {
    const int32_t* const items =
        (kSearches ? graph.targets_of_u() : graph.targets_of_v()) + tasks.items[task];
    const uint32_t count = tasks.count[task];
    const Region region = tasks.region[task];
    for (uint32_t item = threadIdx.x % kWarp; item < count; item += kWarp * kUnroll) {
      int32_t wanted[kUnroll];
#pragma unroll
      for (uint32_t k = 0; k < kUnroll; ++k) {
        wanted[k] = item + k * kWarp < count ? items[item + k * kWarp] : -1;
      }
#pragma unroll
      for (uint32_t k = 0; k < kUnroll; ++k) {
        if (!graph.is_target(wanted[k])) continue;
        const auto target = static_cast<uint32_t>(wanted[k]);
        uint32_t slot = kEmpty;
        if constexpr (kSearches) {
          const List list = {tasks.list[task], tasks.list[task] + tasks.length[task]};
          const int64_t at = find(graph.targets_of_v(), list, wanted[k]);
          const bool is_there = at < list.end && graph.targets_of_v()[at] == wanted[k];
          if (is_there) slot = kPerVertex ? slot_of(shared.slots, region, target) : 0;
        } else {
          slot = slot_of(shared.slots, region, target);
        }
        if (slot == kEmpty) continue;
        ++matches;
        if constexpr (kPerVertex) {
          atomicAdd(&shared.hits[slot], 1u);
          atomicAdd(&shared.edge_hits[tasks.edge[task]], 1u);
        }
      }
    }
  }
  return matches;
}

template <typename Count>
__device__ __forceinline__ void add(Count* count, uint32_t triangles) {
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

template <bool kPerVertex, typename Graph>
__global__ __launch_bounds__(kThreads) void count_triangles(const Graph graph, uint64_t* count) {
  __shared__ Shared<kPerVertex> shared;
  const int64_t edges = graph.edges();
  const int64_t blocks = (edges + kBlockEdges - 1) / kBlockEdges;
  if (blockIdx.x >= blocks) return;
  // The highest ranks have the longest lists, so the blocks that start first have them.
  List own;
  own.begin = (blocks - 1 - blockIdx.x) * kBlockEdges;
  own.end = min(own.begin + kBlockEdges, edges);
  const List lists = graph.targets_of(own);
  if (threadIdx.x == 0) shared.count = 0;
  if constexpr (kPerVertex) {
    for (int i = threadIdx.x; i < kBlockEdges; i += kThreads) shared.edge_hits[i] = 0;
  }
  for (int64_t begin = lists.begin; begin < lists.end; begin += kTableEdges) {
    const int64_t length = min(int64_t{kTableEdges}, lists.end - begin);
    const Piece piece = {{begin, begin + length}, kSlots / static_cast<uint32_t>(length)};
    if constexpr (kPerVertex) {
      for (int slot = threadIdx.x; slot < kSlots; slot += kThreads) shared.hits[slot] = 0;
    }
    fill_table(graph, piece, own, shared.slots);
    Work work[kOwnEdges];
#pragma unroll
    for (int i = 0; i < kOwnEdges; ++i) {
      const int64_t edge = own.begin + threadIdx.x + i * kThreads;
      work[i] = edge < own.end ? work_of(graph, piece, edge) : Work{};
    }
    uint32_t matches =
        count_matches<kPerVertex, false>(graph, write_tasks(work, false, shared), shared);
    __syncthreads();
    matches += count_matches<kPerVertex, true>(graph, write_tasks(work, true, shared), shared);
    __syncthreads();
    if constexpr (kPerVertex) {
      add_slots(graph.graph, shared, count);
      __syncthreads();
    } else {
#pragma unroll
      for (int mask = kWarp / 2; mask > 0; mask /= 2) matches += shuffle_xor(matches, mask);
      if (threadIdx.x % kWarp == 0) add(&shared.count, matches);
    }
  }
  if constexpr (kPerVertex) {
    add_edges(graph.graph, shared, own, count);
  } else {
    __syncthreads();
    if (threadIdx.x == 0 && shared.count > 0) {
      atomicAdd(reinterpret_cast<unsigned long long*>(count), shared.count);
    }
  }
}

}  // namespace

cudaError_t launch(const CountPlan& plan, cudaStream_t stream) {
  const auto kernel =
      plan.per_vertex ? count_triangles<true, WholeGraph> : count_triangles<false, WholeGraph>;
  return launch_kernel(kernel, plan.shape, stream, WholeGraph{plan.graph}, plan.count);
}

cudaError_t launch(const BlocksPlan& plan, cudaStream_t stream) {
  return launch_kernel(count_triangles<false, GraphBlocks>, plan.shape, stream,
                       GraphBlocks{plan.blocks}, plan.count);
}

}  // namespace gpuopt::triangle_count
