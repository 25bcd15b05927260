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

constexpr int kRun = 8;  // neighbouring entries whose degrees a thread counts

struct OrientPlan {
  Edges edges;
  Oriented graph;
  int bits = 0;         // of a rank, and of the number that stands for no rank
  int degree_bits = 0;  // of a degree: at most twice the number of entries, in 32 bits
  LaunchShape of_runs, of_edges, of_vertices;
};

inline OrientPlan plan(const Edges& edges, const Oriented& graph) {
  OrientPlan plan;
  plan.edges = edges;
  plan.graph = graph;
  plan.bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(edges.vertices)));
  plan.degree_bits = static_cast<int>(
      std::min<int64_t>(std::bit_width(static_cast<uint64_t>(edges.count)) + 1, 32));
  plan.of_runs = shape_of(ceil_div<int64_t>(edges.count, kRun));
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

constexpr int kBlockEdges = 512;  // edges of a block
constexpr int kTableEdges = 640;  // edges that the table of a block holds
constexpr int kSlots = 6 * kTableEdges;

inline LaunchShape shape_of_edges(int64_t edges) {
  return {static_cast<unsigned>(ceil_div<int64_t>(edges, kBlockEdges)), kThreads};
}

struct CountPlan {
  Oriented graph;             // kernels only read it
  uint64_t* count = nullptr;  // [1], or [vertices] if per_vertex; zeros
  bool per_vertex = false;
  LaunchShape shape;
};

inline CountPlan plan(const Oriented& graph, uint64_t* count, bool per_vertex) {
  return {graph, count, per_vertex, shape_of_edges(graph.capacity)};
}

// Adds the triangles to plan.count.
GPUOPT_EXPORT cudaError_t launch(const CountPlan& plan, cudaStream_t stream);

// ---------------------------------------------------------------- counting a partitioned graph

// Sorted lists of targets: row r has target[ptr[r]] to target[ptr[r + 1]].
struct Lists {
  const int32_t* ptr = nullptr;     // [rows + 1]
  const int32_t* target = nullptr;  // [ptr[rows]]
  int64_t rows = 0;
};

// Three blocks of a graph whose vertices are in buckets. The first block has edges (u, v), sorted
// by u. The second one has the targets w of each u in some bucket, and the third one the targets of
// each v in the same bucket.
struct Blocks {
  const int32_t* source = nullptr;  // [edges]
  const int32_t* target = nullptr;  // [edges]
  int64_t edges = 0;
  Lists of_u, of_v;
};

struct BlocksPlan {
  Blocks blocks;
  uint64_t* count = nullptr;  // [1]
  LaunchShape shape;
};

inline BlocksPlan plan(const Blocks& blocks, uint64_t* count) {
  return {blocks, count, shape_of_edges(blocks.edges)};
}

// Adds the triangles to plan.count. There is at least one edge.
GPUOPT_EXPORT cudaError_t launch(const BlocksPlan& plan, cudaStream_t stream);

}  // namespace gpuopt::triangle_count
