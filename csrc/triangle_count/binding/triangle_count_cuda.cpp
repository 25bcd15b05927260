// The CUDA kernels of triangle counts: describe tensors as problems, and launch their plans.
#include <ATen/ATen.h>

#include "binding/cuda_launch.h"
#include "binding/unfilled.h"
#include "triangle_count/binding/triangle_count_check.h"

namespace gpuopt::triangle_count {
namespace {

OrientEdges::Result orient_cuda(const OrientEdges& call) {
  const char* op = name_of<TriangleCount>();
  check(call, op);
  check_memory(op, {{"source", call.source}, {"target", call.target}});
  const c10::cuda::CUDAGuard guard(call.source.device());
  const Tensor from = call.source.contiguous(), to = call.target.contiguous();
  Edges edges;
  edges.source = from.const_data_ptr();
  edges.target = to.const_data_ptr();
  edges.is_long = from.scalar_type() == at::kLong;
  edges.count = from.numel();
  edges.vertices = call.vertices.expect_int();
  const auto vector = [&](int64_t size, at::ScalarType dtype) {
    return unfilled({size}, from.options().dtype(dtype));
  };
  const Tensor ptr = vector(edges.vertices + 1, at::kLong);
  const Tensor source = vector(edges.count, at::kInt), target = vector(edges.count, at::kInt);
  const Tensor order = vector(edges.vertices, at::kInt);
  if (edges.count == 0) {
    return {ptr.zero_(), source, target, at::arange(edges.vertices, order.options())};
  }
  Oriented graph;
  graph.ptr = ptr.mutable_data_ptr<int64_t>();
  graph.source = source.mutable_data_ptr<int32_t>();
  graph.target = target.mutable_data_ptr<int32_t>();
  graph.order = order.mutable_data_ptr<int32_t>();
  graph.vertices = edges.vertices;
  graph.capacity = edges.count;
  TensorWorkspace workspace;
  check_launch(op, launch(plan(edges, graph), workspace, c10::cuda::getCurrentCUDAStream()));
  return {ptr, source, target, order};
}

// Zeros of this shape.
Tensor zeros(at::IntArrayRef sizes, const Tensor& like) {
  return unfilled(sizes, like.options().dtype(at::kLong)).zero_();
}

uint64_t* memory_of(const Tensor& count) {
  return reinterpret_cast<uint64_t*>(count.mutable_data_ptr<int64_t>());
}

Tensor count_cuda(const CountOriented& call) {
  const char* op = name_of<TriangleCount>();
  check(call);
  check_memory(op, {{"ptr", call.ptr}, {"target", call.target}, {"order", call.order}});
  const c10::cuda::CUDAGuard guard(call.ptr.device());
  const Tensor ptr = call.ptr.contiguous(), target = call.target.contiguous();
  const Tensor order = call.order.contiguous();
  at::DimVector sizes;
  if (call.per_vertex) sizes.push_back(order.numel());
  const Tensor count = zeros(sizes, ptr);
  if (target.numel() == 0 || order.numel() == 0) return count;
  const Lists<int64_t> lists = {ptr.const_data_ptr<int64_t>(), target.const_data_ptr<int32_t>(),
                                order.numel()};
  const auto* each = call.per_vertex ? order.const_data_ptr<int32_t>() : nullptr;
  const auto plan = plan_whole(lists, target.numel(), each, memory_of(count));
  check_launch(op, launch(plan, c10::cuda::getCurrentCUDAStream()));
  return count;
}

Lists<int32_t> lists_of(const Tensor& ptr, const Tensor& target) {
  return {ptr.const_data_ptr<int32_t>(), target.const_data_ptr<int32_t>(), ptr.numel() - 1};
}

Tensor count_blocks_cuda(const CountBlocks& call) {
  const char* op = name_of<CountBlocks>();
  check(call);
  check_memory(op, {{"ptr", call.ptr},
                    {"target", call.target},
                    {"ptr_of_u", call.ptr_of_u},
                    {"target_of_u", call.target_of_u},
                    {"ptr_of_v", call.ptr_of_v},
                    {"target_of_v", call.target_of_v}});
  const c10::cuda::CUDAGuard guard(call.ptr.device());
  const Tensor ptr = call.ptr.contiguous(), target = call.target.contiguous();
  const Tensor ptr_of_u = call.ptr_of_u.contiguous(), ptr_of_v = call.ptr_of_v.contiguous();
  const Tensor target_of_u = call.target_of_u.contiguous();
  const Tensor target_of_v = call.target_of_v.contiguous();
  const Tensor count = zeros({}, ptr);
  if (target.numel() == 0) return count;
  const auto plan = plan_blocks(lists_of(ptr, target), lists_of(ptr_of_u, target_of_u),
                                lists_of(ptr_of_v, target_of_v), memory_of(count));
  check_launch(op, launch(plan, c10::cuda::getCurrentCUDAStream()));
  return count;
}

TORCH_LIBRARY_IMPL(gpuopt, CUDA, m) {
  impl<OrientEdges, orient_cuda>(m);
  impl<CountOriented, count_cuda>(m);
  impl<CountBlocks, count_blocks_cuda>(m);
}

}  // namespace
}  // namespace gpuopt::triangle_count
