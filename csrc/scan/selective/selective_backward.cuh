// Launches the kernels of the gradients.
#pragma once

#include "scan/selective/selective_backward_kernel.cuh"

namespace gpuopt::selective {

template <typename T, bool kConstant>
cudaError_t launch_backward(const BackwardArgs& args, cudaStream_t stream) {
  return dispatch_layout<T, kConstant, true>(args.plan, [&](auto layout) {
    using Layout = decltype(layout);
    return launch_blocks(scan_backward<T, Layout, kConstant>, args,
                         BackwardShared<compute_t<T>, Layout>::kBytes, stream);
  });
}

template <typename T>
cudaError_t run_backward(const Problem& problem, const Gradients& gradients, const Device& device,
                         Workspace& workspace, cudaStream_t stream) {
  const Plan plan = plan_backward(problem, device);
  const size_t value = sizeof(compute_t<T>);
  const size_t all_states = static_cast<size_t>(problem.batch * problem.channels * problem.states);
  const size_t tiles = static_cast<size_t>(ceil_div<int64_t>(problem.length, plan.tile));
  BackwardArgs args{problem, gradients, plan};
  args.checkpoints = workspace.allocate(tiles * all_states * value);
  if (plan.sets > 1) args.carry = workspace.allocate(all_states * value);
  const cudaError_t error =
      write_checkpoints<T>(problem, device, const_cast<void*>(args.checkpoints), plan.tile, stream);
  if (error != cudaSuccess) return error;
  if constexpr (sizeof(T) >= 4) {
    if (has_constant(problem)) return launch_backward<T, true>(args, stream);
  }
  return launch_backward<T, false>(args, stream);
}

}  // namespace gpuopt::selective
