// The steps of triangle_count_ladder.h. docs/ladder shows the code of a step between two equal
// marks in brackets.
#include "common/index.h"
#include "triangle_count/ladder/triangle_count_ladder.h"

namespace gpuopt::triangle_count {
namespace {

constexpr int kLadderThreads = 128;

// Neighbours of a vertex, ascending.
struct Neighbours {
  const int32_t* begin;
  const int32_t* end;

  __device__ int64_t size() const { return end - begin; }
};

__device__ Neighbours neighbours_of(const LadderProblem& graph, int32_t vertex) {
  return {graph.target + graph.ptr[vertex], graph.target + graph.ptr[vertex + 1]};
}

// Whether u < v for an edge (u, v). If so, `few` and `many` are the neighbours of u behind v and
// all neighbours of v, the shorter list first.
__device__ bool has_lists(const LadderProblem& graph, int64_t edge, Neighbours& few,
                          Neighbours& many) {
  if (edge >= graph.edges) return false;
  const int32_t u = graph.source[edge], v = graph.target[edge];
  if (v <= u) return false;
  few = {graph.target + edge + 1, neighbours_of(graph, u).end};
  many = neighbours_of(graph, v);
  if (few.size() > many.size()) {
    const Neighbours shorter = many;
    many = few;
    few = shorter;
  }
  return true;
}

// Adds the numbers of all threads of a block to the count.
__device__ void add_to_count(uint64_t* count, uint64_t found) {
  __shared__ unsigned long long sum;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  if (found > 0) atomicAdd(&sum, static_cast<unsigned long long>(found));
  __syncthreads();
  if (threadIdx.x == 0 && sum > 0) atomicAdd(reinterpret_cast<unsigned long long*>(count), sum);
}

__device__ int64_t thread_index() { return int64_t{blockIdx.x} * kLadderThreads + threadIdx.x; }

// [merge]
__global__ void merge(LadderProblem graph) {
  uint64_t found = 0;
  Neighbours one, other;
  if (has_lists(graph, thread_index(), one, other)) {
    while (one.begin < one.end && other.begin < other.end) {
      const int32_t left = *one.begin, right = *other.begin;
      found += left == right;
      if (left <= right) ++one.begin;
      if (right <= left) ++other.begin;
    }
  }
  add_to_count(graph.count, found);
}
// [merge]

// [binary_search]
__device__ bool has(Neighbours sorted, int32_t vertex) {
  while (sorted.begin < sorted.end) {
    const int32_t* middle = sorted.begin + sorted.size() / 2;
    if (*middle == vertex) return true;
    if (*middle < vertex) {
      sorted.begin = middle + 1;
    } else {
      sorted.end = middle;
    }
  }
  return false;
}

__global__ void binary_search(LadderProblem graph) {
  uint64_t found = 0;
  Neighbours few, many;
  if (has_lists(graph, thread_index(), few, many)) {
    for (const int32_t* w = few.begin; w < few.end; ++w) found += has(many, *w);
  }
  add_to_count(graph.count, found);
}
// [binary_search]

// [warp_per_edge]
__global__ void warp_per_edge(LadderProblem graph) {
  uint64_t found = 0;
  Neighbours few, many;
  if (has_lists(graph, thread_index() / kWarp, few, many)) {
    for (const int32_t* w = few.begin + threadIdx.x % kWarp; w < few.end; w += kWarp) {
      found += has(many, *w);
    }
  }
  add_to_count(graph.count, found);
}
// [warp_per_edge]

// [orientation]
// The same kernel, for a graph that has each edge from lower to higher degree only.
constexpr auto kCountOriented = warp_per_edge;
// [orientation]

// [hash]
constexpr uint32_t kTableSlots = 4096;
constexpr int64_t kTableVertices = kTableSlots / 4;  // three of four slots are empty

struct Table {
  int32_t slots[kTableSlots];  // -1: empty

  // The slot of a vertex, or the empty slot at which it belongs.
  template <typename Read>
  __device__ uint32_t find(int32_t vertex, Read read) {
    uint32_t slot = static_cast<uint32_t>(vertex) * 0x9e3779b1u / (0xffffffffu / kTableSlots + 1);
    for (int32_t there = read(slots + slot); there != vertex && there != -1;) {
      slot = (slot + 1) % kTableSlots;
      there = read(slots + slot);
    }
    return slot;
  }
  __device__ void insert(int32_t vertex) {
    find(vertex, [&](int32_t* slot) { return atomicCAS(slot, -1, vertex); });
  }
  __device__ bool has(int32_t vertex) {
    return slots[find(vertex, [](const int32_t* slot) { return *slot; })] == vertex;
  }
};

// A block has a vertex. Its warps have the edges of the vertex. A list that is longer than the
// table takes several.
__global__ void hash(LadderProblem graph) {
  __shared__ Table table;
  const auto u = static_cast<int32_t>(blockIdx.x);
  const Neighbours targets = neighbours_of(graph, u);
  uint64_t found = 0;
  for (const int32_t* first = targets.begin; first < targets.end; first += kTableVertices) {
    for (uint32_t i = threadIdx.x; i < kTableSlots; i += kLadderThreads) table.slots[i] = -1;
    __syncthreads();
    const int32_t* const last =
        first + min(kTableVertices, static_cast<int64_t>(targets.end - first));
    for (const int32_t* w = first + threadIdx.x; w < last; w += kLadderThreads) table.insert(*w);
    __syncthreads();
    for (const int32_t* v = targets.begin + threadIdx.x / kWarp; v < last;
         v += kLadderThreads / kWarp) {
      const Neighbours others = neighbours_of(graph, *v);
      for (const int32_t* w = others.begin + threadIdx.x % kWarp; w < others.end; w += kWarp) {
        found += table.has(*w);
      }
    }
    __syncthreads();
  }
  add_to_count(graph.count, found);
}
// [hash]

}  // namespace

cudaError_t ladder_triangle_count(int step, const LadderProblem& problem, cudaStream_t stream) {
  const auto blocks_of = [](int64_t threads) {
    return static_cast<unsigned>(ceil_div<int64_t>(threads, kLadderThreads));
  };
  if (step < 0 || step > 4) return cudaErrorInvalidValue;
  if (problem.edges == 0 || problem.vertices == 0) return cudaSuccess;
  const unsigned threads = blocks_of(problem.edges), warps = blocks_of(problem.edges * kWarp);
  if (step == 0) merge<<<threads, kLadderThreads, 0, stream>>>(problem);
  if (step == 1) binary_search<<<threads, kLadderThreads, 0, stream>>>(problem);
  if (step == 2) warp_per_edge<<<warps, kLadderThreads, 0, stream>>>(problem);
  if (step == 3) kCountOriented<<<warps, kLadderThreads, 0, stream>>>(problem);
  if (step == 4) {
    hash<<<static_cast<unsigned>(problem.vertices), kLadderThreads, 0, stream>>>(problem);
  }
  return cudaGetLastError();
}

}  // namespace gpuopt::triangle_count
