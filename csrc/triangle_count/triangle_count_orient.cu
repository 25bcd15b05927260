// Orients a graph: counts degrees, ranks the vertices by degree, and sorts the edges as pairs of
// ranks. All memory has the size of the input, so no step waits for the GPU.
#include <cassert>

#include "common/launch.cuh"
#include "triangle_count/triangle_count.h"

namespace gpuopt::triangle_count {
namespace {

struct Ends {
  int64_t source, target;
  bool is_edge;
};

// A loop is no edge.
__device__ __forceinline__ Ends ends_of(const Edges& edges, int64_t entry) {
  const auto at = [&](const void* ends) {
    return edges.is_long ? static_cast<const int64_t*>(ends)[entry]
                         : int64_t{static_cast<const int32_t*>(ends)[entry]};
  };
  const int64_t source = at(edges.source), target = at(edges.target);
  const auto is_vertex = [&](int64_t vertex) {
    return static_cast<uint64_t>(vertex) < static_cast<uint64_t>(edges.vertices);
  };
  const bool in_range = is_vertex(source) && is_vertex(target);
  assert(in_range && "vertex out of range");
  return {source, target, in_range && source != target};
}

__device__ __forceinline__ int64_t thread_index() {
  return int64_t{blockIdx.x} * kThreads + threadIdx.x;
}

// A vertex has the degree of its entries, repeats included, as they all cost the same here. The
// entries of a row are neighbours, and a thread adds them to its degree at once.
__global__ __launch_bounds__(kThreads) void count_degrees(Edges edges, uint32_t* degrees) {
  const int64_t begin = thread_index() * kThreadEntries,
                end = min(begin + kThreadEntries, edges.count);
  int64_t last = -1;
  uint32_t row_entries = 0;
  for (int64_t entry = begin; entry < end; ++entry) {
    const Ends ends = ends_of(edges, entry);
    if (!ends.is_edge) continue;
    atomicAdd(degrees + ends.target, 1u);
    if (ends.source != last && row_entries > 0) {
      atomicAdd(degrees + last, row_entries);
      row_entries = 0;
    }
    last = ends.source;
    ++row_entries;
  }
  if (row_entries > 0) atomicAdd(degrees + last, row_entries);
}

__global__ __launch_bounds__(kThreads) void write_vertex_keys(const uint32_t* degrees,
                                                              int64_t vertices, int bits,
                                                              uint64_t* keys) {
  const int64_t vertex = thread_index();
  if (vertex < vertices) keys[vertex] = uint64_t{degrees[vertex]} << bits | vertex;
}

// ranks is the inverse of order.
__global__ __launch_bounds__(kThreads) void write_ranks(const uint64_t* sorted, int64_t vertices,
                                                        int bits, int32_t* order, uint32_t* ranks) {
  const int64_t rank = thread_index();
  if (rank >= vertices) return;
  const auto vertex = static_cast<int32_t>(sorted[rank] & ((uint64_t{1} << bits) - 1));
  order[rank] = vertex;
  ranks[vertex] = static_cast<uint32_t>(rank);
}

// The key of an edge is its lower rank, followed by the higher one. The key of a loop is behind
// the keys of all edges.
__global__ __launch_bounds__(kThreads) void write_edge_keys(Edges edges, const uint32_t* ranks,
                                                            int bits, uint64_t* keys) {
  const int64_t entry = thread_index();
  if (entry >= edges.count) return;
  const Ends ends = ends_of(edges, entry);
  uint64_t key = static_cast<uint64_t>(edges.vertices) << bits;
  if (ends.is_edge) {
    const uint32_t one = ranks[ends.source], other = ranks[ends.target];
    key = uint64_t{min(one, other)} << bits | max(one, other);
  }
  keys[entry] = key;
}

__global__ __launch_bounds__(kThreads) void write_edges(const uint64_t* keys, const int64_t* count,
                                                        int bits, Oriented graph) {
  const int64_t edge = thread_index();
  if (edge >= graph.capacity) return;
  int32_t source = -1, target = -1;
  if (edge < *count && keys[edge] >> bits < static_cast<uint64_t>(graph.vertices)) {
    source = static_cast<int32_t>(keys[edge] >> bits);
    target = static_cast<int32_t>(keys[edge] & ((uint64_t{1} << bits) - 1));
  }
  graph.source[edge] = source;
  graph.target[edge] = target;
}

__global__ __launch_bounds__(kThreads) void write_ptr(const uint64_t* keys, const int64_t* count,
                                                      int bits, Oriented graph) {
  const int64_t rank = thread_index();
  if (rank > graph.vertices) return;
  int64_t low = 0, high = *count;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (keys[middle] >> bits < static_cast<uint64_t>(rank)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  graph.ptr[rank] = low;
}

}  // namespace

cudaError_t launch(const OrientPlan& plan, Workspace& workspace, cudaStream_t stream) {
  const auto& [edges, graph, bits, degree_bits, of_degrees, of_edges, of_vertices] = plan;
  const auto keys_of = [&](int64_t count) {
    return static_cast<uint64_t*>(workspace.allocate(sizeof(uint64_t) * count));
  };
  const size_t bytes = sizeof(uint32_t) * edges.vertices;
  auto* const degrees = static_cast<uint32_t*>(workspace.allocate(bytes));
  auto* const ranks = static_cast<uint32_t*>(workspace.allocate(bytes));
  auto* const count = static_cast<int64_t*>(workspace.allocate(sizeof(int64_t)));
  uint64_t* by_degree[2] = {keys_of(edges.vertices), keys_of(edges.vertices)};
  uint64_t* keys[2] = {keys_of(edges.count), keys_of(edges.count)};
  cudaError_t error = cudaMemsetAsync(degrees, 0, bytes, stream);
  const auto then = [&](auto kernel, const LaunchShape& shape, const auto&... arguments) {
    if (error == cudaSuccess) error = launch_kernel(kernel, shape, stream, arguments...);
  };
  then(count_degrees, of_degrees, edges, degrees);
  then(write_vertex_keys, of_vertices, degrees, edges.vertices, bits, by_degree[0]);
  if (error != cudaSuccess) return error;
  error = sort_keys(by_degree, edges.vertices, bits + degree_bits, workspace, stream);
  then(write_ranks, of_vertices, by_degree[0], edges.vertices, bits, graph.order, ranks);
  then(write_edge_keys, of_edges, edges, ranks, bits, keys[0]);
  if (error != cudaSuccess) return error;
  error = sort_keys(keys, edges.count, 2 * bits, workspace, stream);
  if (error != cudaSuccess) return error;
  error = unique_keys(keys[0], keys[1], count, edges.count, workspace, stream);
  then(write_edges, of_edges, keys[1], count, bits, graph);
  then(write_ptr, of_vertices, keys[1], count, bits, graph);
  return error;
}

}  // namespace gpuopt::triangle_count
