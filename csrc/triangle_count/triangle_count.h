// Triangles of a graph: the contract between bindings and kernels, and the plans. Plain host C++.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "common/export.h"
#include "common/index.h"
#include "common/launch_shape.h"
#include "common/workspace.h"

namespace gpuopt::triangle_count {

// Ranks are 32-bit numbers, and two of them are a key of 64 bits.
constexpr int64_t kMostVertices = INT32_MAX;

// The entries of a graph: any order, either or both directions, repeats and loops.
struct Edges {
  const void* source = nullptr;  // [count]
  const void* target = nullptr;  // [count]
  bool is_long = false;          // int64, else int32
  int64_t count = 0;
  int64_t vertices = 0;
};

// Each edge once, from lower to higher rank. Ranks number the vertices by degree, and equal degrees
// by vertex. Edges are sorted by source and target, so the edges of a source are a sorted list.
// There are ptr[vertices] edges; the rest of the memory holds -1.
struct Oriented {
  int64_t* ptr = nullptr;     // [vertices + 1]
  int32_t* source = nullptr;  // [capacity]
  int32_t* target = nullptr;  // [capacity]
  int32_t* order = nullptr;   // [vertices]: the vertex of each rank
  int64_t vertices = 0;
  int64_t capacity = 0;
};

constexpr unsigned kThreads = 256;

inline LaunchShape shape_of(int64_t threads) {
  return {static_cast<unsigned>(ceil_div<int64_t>(threads, kThreads)), kThreads};
}

// ---------------------------------------------------------------- orientation

constexpr int kThreadEntries = 8;  // neighbouring entries whose degrees a thread counts

struct OrientPlan {
  Edges edges;
  Oriented graph;
  int bits = 0;         // of a rank, and of the number that stands for no rank
  int degree_bits = 0;  // of a degree: at most twice the number of entries, in 32 bits
  LaunchShape of_degrees, of_edges, of_vertices;
};

inline OrientPlan plan(const Edges& edges, const Oriented& graph) {
  OrientPlan plan;
  plan.edges = edges;
  plan.graph = graph;
  plan.bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(edges.vertices)));
  plan.degree_bits = static_cast<int>(
      std::min<int64_t>(std::bit_width(static_cast<uint64_t>(edges.count)) + 1, 32));
  plan.of_degrees = shape_of(ceil_div<int64_t>(edges.count, kThreadEntries));
  plan.of_edges = shape_of(edges.count);
  plan.of_vertices = shape_of(edges.vertices + 1);
  return plan;
}

GPUOPT_EXPORT cudaError_t launch(const OrientPlan& plan, Workspace& workspace, cudaStream_t stream);

// Sorts keys[0] by the lowest `bits` bits. Exchanges the arrays if the result is in the other one.
cudaError_t sort_keys(uint64_t* (&keys)[2], int64_t count, int bits, Workspace& workspace,
                      cudaStream_t stream);

// Copies each of the sorted keys once, and writes the number of copies.
cudaError_t unique_keys(const uint64_t* keys, uint64_t* copies, int64_t* copied, int64_t count,
                        Workspace& workspace, cudaStream_t stream);

// ---------------------------------------------------------------- counting

constexpr unsigned kCountThreads = 128;
constexpr uint32_t kTableTargets = 1024;  // targets that the table of a block holds
constexpr uint32_t kSlotsPerTarget = 4;
static_assert(std::has_single_bit(kTableTargets * kSlotsPerTarget));

// Sorted lists of targets: row r has target[ptr[r]] to target[ptr[r + 1]].
template <typename Ptr>
struct Lists {
  const Ptr* ptr = nullptr;         // [rows + 1]
  const int32_t* target = nullptr;  // [ptr[rows]]
  int64_t rows = 0;
};

// Edges (u, v), the targets of each u, and the targets of each v. In a whole graph, all three are
// the same lists. In a partitioned graph they are three blocks: u, v and w are in three buckets.
template <typename Ptr>
struct CountPlan {
  Lists<Ptr> edges, of_u, of_v;
  uint32_t shortest = 1;           // edges of a vertex u that may have triangles
  const int32_t* order = nullptr;  // the vertex of each rank, if triangles of each are counted
  uint64_t* count = nullptr;       // [1], or for each vertex
  LaunchShape shape;
};

inline LaunchShape shape_of_rows(int64_t rows) {
  return {static_cast<unsigned>(ceil_div<int64_t>(rows, kCountThreads / kWarp)), kCountThreads};
}

// `lists` are the lists of an oriented graph with memory for `capacity` edges. Vertices with edges
// have the highest ranks. With `order`, the triangles of each vertex are counted.
inline CountPlan<int64_t> plan_whole(const Lists<int64_t>& lists, int64_t capacity,
                                     const int32_t* order, uint64_t* count) {
  const int64_t rows = std::min(lists.rows, 2 * capacity);
  return {lists, lists, lists, 2, order, count, shape_of_rows(rows)};
}

inline CountPlan<int32_t> plan_blocks(const Lists<int32_t>& edges, const Lists<int32_t>& of_u,
                                      const Lists<int32_t>& of_v, uint64_t* count) {
  return {edges, of_u, of_v, 1, nullptr, count, shape_of_rows(edges.rows)};
}

// Adds the triangles to plan.count.
GPUOPT_EXPORT cudaError_t launch(const CountPlan<int64_t>& plan, cudaStream_t stream);
GPUOPT_EXPORT cudaError_t launch(const CountPlan<int32_t>& plan, cudaStream_t stream);

}  // namespace gpuopt::triangle_count
