// Launches what a Plan describes, for each element type.
#pragma once

#include "dot/dot.h"
#include "dot/paths/dot_rows.cuh"
#include "dot/paths/dot_values.cuh"
#include "dot/paths/dot_vectors.cuh"

namespace gpuopt::dot {

inline Args make_args(const Problem& problem, const Plan& plan, void* to, Target target) {
  Args args;
  args.self = problem.self.data;
  args.tensor = problem.tensor.data;
  args.to = to;
  args.self_stride = problem.self.stride;
  args.tensor_stride = problem.tensor.stride;
  args.self_row_stride = problem.self.row_stride;
  args.tensor_row_stride = problem.tensor.row_stride;
  args.rows = problem.rows;
  args.size = problem.size;
  args.splits = divide_by(plan.splits);
  args.x = static_cast<uint32_t>(plan.x);
  args.y = static_cast<uint32_t>(plan.y);
  args.rows_per_lane = static_cast<uint32_t>(plan.rows_per_lane);
  args.target = target;
  args.rows_first = plan.rows_first;
  args.read_once = plan.read_once;
  args.conjugate_self = plan.conjugate_self;
  args.conjugate_out = plan.conjugate_out;
  return args;
}

template <typename T>
cudaError_t launch_main(const Problem& problem, const Plan& plan, void* to, Target target,
                        cudaStream_t stream) {
  LaunchShape shape;
  shape.blocks = static_cast<unsigned>(plan.blocks());
  shape.threads = static_cast<unsigned>(plan.threads());
  shape.shared_bytes = plan.shared_bytes;
  shape.use_pdl = true;
  if (plan.path == Path::kLine) {
    LineArgs args;
    args.self = problem.self.data;
    args.tensor = problem.tensor.data;
    args.to = to;
    args.vecs = problem.size / kVecSize<T>;
    args.tail = static_cast<uint32_t>(problem.size % kVecSize<T>);
    args.target = target;
    args.read_once = plan.read_once;
    args.conjugate_self = plan.conjugate_self;
    args.conjugate_out = plan.conjugate_out;
    return plan.unroll == 1 ? launch_kernel(line_kernel<T, 1>, shape, stream, args)
                            : launch_kernel(line_kernel<T, kVecUnroll>, shape, stream, args);
  }
  const Args args = make_args(problem, plan, to, target);
  const auto start = [&](auto kernel) { return launch_kernel(kernel, shape, stream, args); };
  switch (plan.path) {
    case Path::kRows:
      return plan.shifted ? start(rows_kernel<T, true>) : start(rows_kernel<T, false>);
    case Path::kShortRows:
      return start(short_rows_kernel<T>);
    case Path::kTile:
      return start(tile_kernel<T>);
    default:
      return start(values_kernel<T>);
  }
}

template <typename T>
cudaError_t launch(const Problem& problem, const Plan& plan, Workspace& memory,
                   cudaStream_t stream) {
  if (plan.splits == 1) return launch_main<T>(problem, plan, problem.out, Target::kOut, stream);
  const auto sums = static_cast<size_t>(problem.rows) * static_cast<size_t>(plan.splits);
  auto* workspace = static_cast<sum_t<T>*>(memory.allocate(sums * sizeof(sum_t<T>)));
  const cudaError_t error = launch_main<T>(problem, plan, workspace, Target::kWorkspace, stream);
  if (error != cudaSuccess) return error;
  LaunchShape shape;
  shape.blocks = static_cast<unsigned>(problem.rows);
  shape.threads =
      static_cast<unsigned>(std::clamp<int64_t>(pow2_ceil(plan.splits), kWarp, kFinishThreads));
  shape.use_pdl = true;
  return launch_kernel(finish_kernel<T>, shape, stream, static_cast<const sum_t<T>*>(workspace),
                       static_cast<T*>(problem.out), static_cast<uint32_t>(plan.splits),
                       plan.conjugate_out);
}

template <typename T>
cudaError_t launch_atomic(const Problem& problem, const Plan& plan, cudaStream_t stream) {
  if (plan.splits == 1) return launch_main<T>(problem, plan, problem.out, Target::kOut, stream);
  // The main kernel overlaps this launch. cudaMemsetAsync in its stead costs 2 us more (2^17
  // values, H200).
  LaunchShape shape;
  shape.use_pdl = true;
  const cudaError_t error =
      launch_kernel(zero_kernel<T>, shape, stream, static_cast<T*>(problem.out));
  if (error != cudaSuccess) return error;
  return launch_main<T>(problem, plan, problem.out, Target::kAtomic, stream);
}

}  // namespace gpuopt::dot
