// Checks the arguments of triangle counts. The CUDA, CPU and Meta kernels call these functions.
// Kernels look at the numbers of vertices themselves, as that would wait for the GPU here.
#pragma once

#include "binding/check.h"
#include "binding/plain.h"
#include "triangle_count/binding/triangle_count_ops.h"
#include "triangle_count/triangle_count.h"

namespace gpuopt::triangle_count {

inline void check(const OrientEdges& call, const char* op) {
  const auto& [source, target, vertices] = call;
  TORCH_CHECK_TYPE(is_index(source), op,
                   ": source must be int32 or int64: expected Int or Long, got ",
                   source.scalar_type());
  TORCH_CHECK_TYPE(target.scalar_type() == source.scalar_type(), op,
                   ": target must have the dtype of source: expected ", source.scalar_type(),
                   ", got ", target.scalar_type());
  TORCH_CHECK_VALUE(source.dim() == 1, op,
                    ": source must be a vector: expected 1 dimension, got shape ",
                    source.sym_sizes());
  const bool is_same =
      target.dim() == 1 && TORCH_GUARD_OR_TRUE(target.sym_size(0).sym_eq(source.sym_size(0)));
  TORCH_CHECK_VALUE(is_same, op, ": target must have the shape of source: expected ",
                    source.sym_sizes(), ", got ", target.sym_sizes());
  TORCH_CHECK_VALUE(TORCH_GUARD_OR_TRUE(vertices.sym_ge(0)) &&
                        TORCH_GUARD_OR_TRUE(vertices.sym_le(kMostVertices)),
                    op, ": vertices must be the size of the graph: expected 0 to ", kMostVertices,
                    ", got ", vertices);
  check_same_device(op, {{"source", source}, {"target", target}});
}

inline void check(const CountOriented& call) {
  const char* op = name_of<CountOriented>();
  const auto& [ptr, target, order, per_vertex] = call;
  const bool fits = ptr.scalar_type() == at::kLong && target.scalar_type() == at::kInt &&
                    order.scalar_type() == at::kInt && ptr.dim() == 1 && target.dim() == 1 &&
                    order.dim() == 1;
  TORCH_CHECK(fits, op, ": expected the vectors that ", name_of<OrientEdges>(), " returns");
  check_same_device(op, {{"ptr", ptr}, {"target", target}, {"order", order}});
}

inline void check(const CountBlocks& call) {
  const char* op = name_of<CountBlocks>();
  const auto& [ptr, target, ptr_of_u, target_of_u, ptr_of_v, target_of_v] = call;
  for (const Tensor* vector : {&ptr, &target, &ptr_of_u, &target_of_u, &ptr_of_v, &target_of_v}) {
    TORCH_CHECK(vector->scalar_type() == at::kInt && vector->dim() == 1, op,
                ": expected vectors of int32, got ", vector->scalar_type(), " of shape ",
                vector->sym_sizes());
  }
  check_same_device(op, {{"ptr", ptr},
                         {"target", target},
                         {"ptr_of_u", ptr_of_u},
                         {"target_of_u", target_of_u},
                         {"ptr_of_v", ptr_of_v},
                         {"target_of_v", target_of_v}});
}

}  // namespace gpuopt::triangle_count
