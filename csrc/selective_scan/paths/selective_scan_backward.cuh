// Launches the kernels of the gradients.
#pragma once

#include "selective_scan/paths/selective_scan_backward_kernel.cuh"

namespace gpuopt::selective {

template <typename T, bool kConstant>
cudaError_t launch_backward(const BackwardArgs& args, cudaStream_t stream) {
  return dispatch_layout<T, kConstant, true>(args.plan, [&](auto layout) {
    using Layout = decltype(layout);
    return launch_blocks(scan_backward<T, Layout, kConstant>, args, args.plan.segments,
                         BackwardShared<compute_t<T>, Layout>::kBytes, stream);
  });
}

// Writes the states before every tile. With several segments, also what each segment begins with.
template <typename T>
cudaError_t run_passes(BackwardArgs& args, Workspace& workspace, cudaStream_t stream) {
  using C = compute_t<T>;
  const Problem& problem = args.problem;
  const Plan& plan = args.plan;
  ForwardArgs pass{problem, plan_forward(problem)};
  pass.plan.segments = plan.segments;
  pass.plan.segment = plan.segment;
  pass.spacing = plan.tile;
  const auto allocate = [&](int64_t rows, int64_t values) {
    return workspace.allocate(static_cast<size_t>(rows * problem.channels * values) * sizeof(C));
  };
  const int64_t tiles = problem.batch * ceil_div<int64_t>(problem.length, plan.tile);
  const int64_t rows = problem.batch * plan.segments;
  args.checkpoints = pass.checkpoints = allocate(tiles, problem.states);
  if (plan.sets > 1) args.carry = allocate(rows, problem.states);
  if (plan.segments == 1) return launch_pass<T, Pass::kStates>(pass, 1, stream);

  args.elapsed = pass.elapsed = allocate(tiles, 1);
  args.states = pass.states = allocate(rows, problem.states);
  pass.seconds = allocate(rows, 1);
  cudaError_t error = launch_pass<T, Pass::kStates>(pass, plan.segments, stream);
  if (error != cudaSuccess) return error;
  CombineArgs all{problem, plan.segments, false, nullptr, pass.states, pass.seconds};
  error = combine<C>(all, stream);
  if (error != cudaSuccess) return error;
  pass.problem.u = args.gradients.out;
  pass.first_segment = 1;  // nothing precedes segment 0
  args.states_gradient = pass.states = allocate(rows, problem.states);
  error = launch_pass<T, Pass::kGradients>(pass, plan.segments - 1, stream);
  if (error != cudaSuccess) return error;
  all.reverse = true;
  all.initial = args.gradients.last_state;
  all.states = pass.states;
  return combine<C>(all, stream);
}

template <typename T>
cudaError_t run_backward(const Problem& problem, const Gradients& gradients, const Device& device,
                         Workspace& workspace, cudaStream_t stream, const Tuning& tuning = {}) {
  BackwardArgs args{problem, gradients, plan_backward(problem, device, tuning)};
  const cudaError_t error = run_passes<T>(args, workspace, stream);
  if (error != cudaSuccess) return error;
  if constexpr (sizeof(T) >= 4) {
    if (has_constant(problem)) return launch_backward<T, true>(args, stream);
  }
  return launch_backward<T, false>(args, stream);
}

}  // namespace gpuopt::selective
