// What the counting kernel reads, from a whole graph or from the blocks of a partitioned one. Both
// give edges (u, v), the list of targets of each u, and the list of targets of each v. Lists are
// sorted, and lie behind each other in the order of their sources.
#pragma once

#include "triangle_count/triangle_count.h"

namespace gpuopt::triangle_count {
namespace {

// Neighbouring entries of an array of targets.
struct List {
  int64_t begin, end;

  __device__ __forceinline__ int64_t length() const { return end - begin; }
};

// The first entry of a list that is not below `target`.
__device__ __forceinline__ int64_t find(const int32_t* targets, List list, int32_t target) {
  while (list.begin < list.end) {
    const int64_t middle = (list.begin + list.end) / 2;
    if (targets[middle] < target) {
      list.begin = middle + 1;
    } else {
      list.end = middle;
    }
  }
  return list.begin;
}

// All lists are lists of edges.
struct WholeGraph {
  Oriented graph;

  __device__ __forceinline__ int64_t edges() const { return graph.ptr[graph.vertices]; }
  __device__ __forceinline__ const int32_t* sources() const { return graph.source; }
  __device__ __forceinline__ const int32_t* targets() const { return graph.target; }
  __device__ __forceinline__ const int32_t* targets_of_u() const { return graph.target; }
  __device__ __forceinline__ const int32_t* targets_of_v() const { return graph.target; }

  __device__ __forceinline__ bool is_target(int32_t rank) const {
    return static_cast<uint32_t>(rank) < static_cast<uint32_t>(graph.vertices);
  }
  __device__ __forceinline__ List list_of_u(int32_t rank) const {
    if (!is_target(rank)) return {0, 0};
    return {graph.ptr[rank], graph.ptr[rank + 1]};
  }
  __device__ __forceinline__ List list_of_v(int32_t rank) const { return list_of_u(rank); }

  // The targets of all u of neighbouring edges, without those before the first v.
  __device__ __forceinline__ List targets_of(const List& edges) const {
    return {edges.begin, max(edges.end, list_of_u(graph.source[edges.end - 1]).end)};
  }
  // The u of an entry among these.
  __device__ __forceinline__ int32_t source_of(int64_t entry, const List&) const {
    return graph.source[entry];
  }
  // Where the targets behind v begin, in the list of u.
  __device__ __forceinline__ int64_t behind(int64_t edge, int64_t begin) const {
    return max(edge + 1, begin);
  }
};

struct GraphBlocks {
  Blocks blocks;

  __device__ __forceinline__ int64_t edges() const { return blocks.edges; }
  __device__ __forceinline__ const int32_t* sources() const { return blocks.source; }
  __device__ __forceinline__ const int32_t* targets() const { return blocks.target; }
  __device__ __forceinline__ const int32_t* targets_of_u() const { return blocks.of_u.target; }
  __device__ __forceinline__ const int32_t* targets_of_v() const { return blocks.of_v.target; }

  __device__ __forceinline__ bool is_target(int32_t target) const { return target >= 0; }
  __device__ __forceinline__ List list_of(const Lists& lists, int32_t row) const {
    if (static_cast<uint32_t>(row) >= static_cast<uint32_t>(lists.rows)) return {0, 0};
    return {lists.ptr[row], lists.ptr[row + 1]};
  }
  __device__ __forceinline__ List list_of_u(int32_t u) const { return list_of(blocks.of_u, u); }
  __device__ __forceinline__ List list_of_v(int32_t v) const { return list_of(blocks.of_v, v); }

  __device__ __forceinline__ List targets_of(const List& edges) const {
    return {list_of_u(blocks.source[edges.begin]).begin,
            list_of_u(blocks.source[edges.end - 1]).end};
  }
  __device__ __forceinline__ int32_t source_of(int64_t entry, const List& edges) const {
    int32_t first = blocks.source[edges.begin], last = blocks.source[edges.end - 1];
    while (first < last) {
      const int32_t middle = first + (last - first + 1) / 2;
      if (blocks.of_u.ptr[middle] <= entry) {
        first = middle;
      } else {
        last = middle - 1;
      }
    }
    return first;
  }
  // v and the targets of u have unrelated numbers.
  __device__ __forceinline__ int64_t behind(int64_t, int64_t begin) const { return begin; }
};

}  // namespace
}  // namespace gpuopt::triangle_count
