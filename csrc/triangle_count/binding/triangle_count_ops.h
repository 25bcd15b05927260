// Triangle counts as operators of binding/op.h.
#pragma once

#include <tuple>

#include "binding/op.h"

namespace gpuopt::triangle_count {

using at::Tensor;

// source (E) and target (E): the entries of a graph with `vertices` vertices, as Edges. The result
// has no dimensions, or one number for each vertex.
struct TriangleCount {
  using Result = Tensor;
  static constexpr std::string_view kSchema =
      "triangle_count(Tensor source, Tensor target, SymInt vertices, bool per_vertex=False) -> "
      "Tensor";
  const Tensor &source, &target;
  c10::SymInt vertices;
  bool per_vertex;
};

// The members of Oriented: ptr (vertices + 1), source (E), target (E) and order (vertices).
struct OrientEdges {
  using Result = std::tuple<Tensor, Tensor, Tensor, Tensor>;
  static constexpr std::string_view kSchema =
      "_orient_edges(Tensor source, Tensor target, SymInt vertices) -> (Tensor, Tensor, Tensor, "
      "Tensor)";
  const Tensor &source, &target;
  c10::SymInt vertices;
};

// The triangles of a graph that is oriented.
struct CountOriented {
  using Result = Tensor;
  static constexpr std::string_view kSchema =
      "_count_oriented(Tensor ptr, Tensor target, Tensor order, bool per_vertex=False) -> Tensor";
  const Tensor &ptr, &target, &order;
  bool per_vertex;
};

// The triangles whose edges are in three blocks of a partitioned graph, the lists of CountPlan.
struct CountBlocks {
  using Result = Tensor;
  static constexpr std::string_view kSchema =
      "_count_blocks(Tensor ptr, Tensor target, Tensor ptr_of_u, Tensor target_of_u, Tensor "
      "ptr_of_v, "
      "Tensor target_of_v) -> Tensor";
  const Tensor &ptr, &target, &ptr_of_u, &target_of_u, &ptr_of_v, &target_of_v;
};

}  // namespace gpuopt::triangle_count
