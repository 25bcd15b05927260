// Triangle counts: the schemas, the CPU and Meta kernels, and the refusal of torch.vmap. The CPU
// kernels are plain loops.
#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "triangle_count/binding/triangle_count_check.h"

namespace gpuopt::triangle_count {
namespace {

// ---------------------------------------------------------------- all devices

Tensor triangle_count(const TriangleCount& call) {
  const auto& [source, target, vertices, per_vertex] = call;
  check({source, target, vertices}, name_of<TriangleCount>());
  const auto [ptr, from, to, order] = gpuopt::call(OrientEdges{source, target, vertices});
  return gpuopt::call(CountOriented{ptr, to, order, per_vertex});
}

// ---------------------------------------------------------------- CPU

// Numbers of the vertices in the order of their degrees.
std::vector<int32_t> order_of(const std::vector<int64_t>& degrees) {
  std::vector<int32_t> order(degrees.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t one, int32_t other) { return degrees[one] < degrees[other]; });
  return order;
}

OrientEdges::Result orient_cpu(const OrientEdges& call) {
  const char* op = name_of<TriangleCount>();
  check(call, op);
  const int64_t vertices = call.vertices.expect_int(), entries = call.source.numel();
  const Tensor source = call.source.to(at::kLong).contiguous();
  const Tensor target = call.target.to(at::kLong).contiguous();
  const std::pair ends{source.const_data_ptr<int64_t>(), target.const_data_ptr<int64_t>()};
  std::vector<int64_t> degrees(vertices);
  for (int64_t e = 0; e < entries; ++e) {
    for (const auto& [name, vertex] :
         {std::pair{"source", ends.first[e]}, {"target", ends.second[e]}}) {
      TORCH_CHECK_INDEX(vertex >= 0 && vertex < vertices, op, ": ", name,
                        " must name vertices: expected numbers from 0 to ", vertices - 1, ", got ",
                        vertex);
      if (ends.first[e] != ends.second[e]) ++degrees[vertex];
    }
  }
  const std::vector<int32_t> order = order_of(degrees);
  std::vector<int32_t> ranks(vertices);
  for (int64_t rank = 0; rank < vertices; ++rank) ranks[order[rank]] = static_cast<int32_t>(rank);
  std::vector<std::pair<int32_t, int32_t>> edges;
  for (int64_t e = 0; e < entries; ++e) {
    if (ends.first[e] == ends.second[e]) continue;
    edges.push_back(std::minmax(ranks[ends.first[e]], ranks[ends.second[e]]));
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  const auto options = source.options();
  const Tensor ptr = at::zeros({vertices + 1}, options);
  const Tensor from = at::full({entries}, -1, options.dtype(at::kInt)), to = from.clone();
  for (size_t e = 0; e < edges.size(); ++e) {
    from.mutable_data_ptr<int32_t>()[e] = edges[e].first;
    to.mutable_data_ptr<int32_t>()[e] = edges[e].second;
    ++ptr.mutable_data_ptr<int64_t>()[edges[e].first + 1];
  }
  const Tensor names = at::empty({vertices}, options.dtype(at::kInt));
  std::copy(order.begin(), order.end(), names.mutable_data_ptr<int32_t>());
  return {ptr.cumsum(0), from, to, names};
}

// Calls `visit` for each target that two ascending lists have.
template <typename Visit>
void each_common_target(const int32_t* one, const int32_t* one_end, const int32_t* other,
                        const int32_t* other_end, Visit visit) {
  while (one < one_end && other < other_end) {
    const bool moves_one = *one <= *other, moves_other = *other <= *one;
    if (moves_one && moves_other) visit(*one);
    one += moves_one;
    other += moves_other;
  }
}

Tensor count_cpu(const CountOriented& call) {
  check(call);
  const int64_t vertices = call.order.numel();
  const Tensor rows = call.ptr.contiguous(), targets = call.target.contiguous();
  const Tensor names = call.order.contiguous();
  const auto* ptr = rows.const_data_ptr<int64_t>();
  const auto* target = targets.const_data_ptr<int32_t>();
  const auto* order = names.const_data_ptr<int32_t>();
  std::vector<int64_t> counts(vertices);
  int64_t total = 0;
  for (int64_t u = 0; u < vertices; ++u) {
    for (int64_t edge = ptr[u]; edge < ptr[u + 1]; ++edge) {
      const int32_t v = target[edge];
      each_common_target(target + edge + 1, target + ptr[u + 1], target + ptr[v],
                         target + ptr[v + 1], [&](int32_t w) {
                           ++total;
                           for (const int64_t rank : {u, int64_t{v}, int64_t{w}}) {
                             ++counts[order[rank]];
                           }
                         });
    }
  }
  const Tensor result = at::full({}, total, rows.options());
  if (!call.per_vertex) return result;
  const Tensor each = at::empty({vertices}, rows.options());
  std::copy(counts.begin(), counts.end(), each.mutable_data_ptr<int64_t>());
  return each;
}

Tensor count_blocks_cpu(const CountBlocks& call) {
  check(call);
  const Tensor rows = call.ptr.contiguous(), targets = call.target.contiguous();
  const Tensor ptr_of_u = call.ptr_of_u.contiguous(), ptr_of_v = call.ptr_of_v.contiguous();
  const Tensor target_of_u = call.target_of_u.contiguous();
  const Tensor target_of_v = call.target_of_v.contiguous();
  const auto* ptr = rows.const_data_ptr<int32_t>();
  const auto* target = targets.const_data_ptr<int32_t>();
  const auto* of_u = ptr_of_u.const_data_ptr<int32_t>();
  const auto* of_v = ptr_of_v.const_data_ptr<int32_t>();
  const auto* w_of_u = target_of_u.const_data_ptr<int32_t>();
  const auto* w_of_v = target_of_v.const_data_ptr<int32_t>();
  int64_t total = 0;
  for (int64_t u = 0; u + 1 < rows.numel(); ++u) {
    for (int32_t edge = ptr[u]; edge < ptr[u + 1]; ++edge) {
      const int32_t v = target[edge];
      each_common_target(w_of_u + of_u[u], w_of_u + of_u[u + 1], w_of_v + of_v[v],
                         w_of_v + of_v[v + 1], [&](int32_t) { ++total; });
    }
  }
  return at::full({}, total, rows.options().dtype(at::kLong));
}

// ---------------------------------------------------------------- Meta: shapes, possibly symbolic

Tensor counts_of(const Tensor& like, const c10::SymInt& vertices, bool per_vertex) {
  const auto options = like.options().dtype(at::kLong);
  return per_vertex ? at::empty_symint({vertices}, options) : at::empty({}, options);
}

Tensor triangle_count_meta(const TriangleCount& call) {
  check({call.source, call.target, call.vertices}, name_of<TriangleCount>());
  return counts_of(call.source, call.vertices, call.per_vertex);
}

OrientEdges::Result orient_meta(const OrientEdges& call) {
  check(call, name_of<OrientEdges>());
  const auto vector = [&](const c10::SymInt& size, at::ScalarType dtype) {
    return at::empty_symint({size}, call.source.options().dtype(dtype));
  };
  const c10::SymInt entries = call.source.sym_size(0);
  return {vector(call.vertices + 1, at::kLong), vector(entries, at::kInt),
          vector(entries, at::kInt), vector(call.vertices, at::kInt)};
}

Tensor count_meta(const CountOriented& call) {
  check(call);
  return counts_of(call.ptr, call.order.sym_size(0), call.per_vertex);
}

Tensor count_blocks_meta(const CountBlocks& call) {
  check(call);
  return at::empty({}, call.ptr.options().dtype(at::kLong));
}

// ---------------------------------------------------------------- torch.vmap

// Graphs of a batch have different numbers of edges once they are cleaned.
template <typename Op>
typename Op::Result refuse(const Op&) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, name_of<Op>(),
                              ": the graph must be the same for all examples of torch.vmap: "
                              "expected tensors without a batch dimension, got examples");
}

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  register_op<TriangleCount, Cpu<triangle_count>, Cuda<triangle_count>, Meta<triangle_count_meta>,
              Batched<refuse<TriangleCount>>>(m);
  register_op<OrientEdges, Cpu<orient_cpu>, Meta<orient_meta>, Batched<refuse<OrientEdges>>>(m);
  register_op<CountOriented, Cpu<count_cpu>, Meta<count_meta>, Batched<refuse<CountOriented>>>(m);
  register_op<CountBlocks, Cpu<count_blocks_cpu>, Meta<count_blocks_meta>,
              Batched<refuse<CountBlocks>>>(m);
}

}  // namespace
}  // namespace gpuopt::triangle_count
