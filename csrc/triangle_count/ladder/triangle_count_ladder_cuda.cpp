// The CUDA kernel of gpuopt_ladder::triangle_count.
#include "binding/ladder_cuda.h"
#include "triangle_count/binding/triangle_count_check.h"
#include "triangle_count/ladder/triangle_count_ladder.h"

namespace gpuopt::triangle_count {
namespace {

Tensor triangle_count_step(const LadderCall& call, const Tensor& source, const Tensor& target,
                           int64_t vertices) {
  check(OrientEdges{source, target, vertices}, call.op());
  call.check_operand({"source", source}, {at::kInt});
  call.check_operand({"target", target}, {at::kInt});
  Tensor ptr, from = source, to = target;
  if (call.step() >= kOrientation) {
    std::tie(ptr, from, to, std::ignore) = gpuopt::call(OrientEdges{source, target, vertices});
  } else {
    ptr = at::searchsorted(source, at::arange(vertices + 1, source.options()));
  }
  const Tensor count = at::zeros({}, ptr.options());
  LadderProblem problem;
  problem.ptr = ptr.const_data_ptr<int64_t>();
  problem.source = from.const_data_ptr<int32_t>();
  problem.target = to.const_data_ptr<int32_t>();
  problem.vertices = vertices;
  problem.edges = from.numel();
  problem.count = reinterpret_cast<uint64_t*>(count.mutable_data_ptr<int64_t>());
  launch_step(call, ladder_triangle_count, problem);
  return count;
}

Tensor triangle_count_production(const Tensor& source, const Tensor& target, int64_t vertices) {
  return gpuopt::call(TriangleCount{source, target, vertices, false});
}

TORCH_LIBRARY_IMPL(gpuopt_ladder, CUDA, m) {
  impl_ladder(m, "triangle_count", triangle_count_production, triangle_count_step);
}

}  // namespace
}  // namespace gpuopt::triangle_count
