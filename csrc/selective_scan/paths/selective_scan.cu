// Selective scans: allocates temporary memory, and chooses the type whose kernels run.
#include "common/floats.cuh"
#include "selective_scan/paths/selective_scan_run.cuh"

namespace gpuopt::selective {

cudaError_t launch(ForwardPlan plan, Workspace& workspace, cudaStream_t stream) {
  ForwardArgs& output = plan.output.args;
  if (plan.segments) {
    auto& [pass, combine, states_bytes, seconds_bytes] = *plan.segments;
    output.states = pass.args.states = combine.args.states = workspace.allocate(states_bytes);
    output.seconds = pass.args.seconds = workspace.allocate(seconds_bytes);
    combine.args.seconds = pass.args.seconds;
  }
  return with_float(output.problem.dtype,
                    [&](auto type) { return run<decltype(type)>(plan, stream); });
}

cudaError_t launch(BackwardPlan plan, Workspace& workspace, cudaStream_t stream) {
  BackwardArgs& backward = plan.backward.args;
  ForwardArgs& first = plan.checkpoints.args;
  backward.checkpoints = first.checkpoints = workspace.allocate(plan.checkpoints_bytes);
  if (plan.carry_bytes > 0) backward.carry = workspace.allocate(plan.carry_bytes);
  if (plan.segments) {
    BackwardPlan::Segments& segments = *plan.segments;
    CombineArgs& combine = segments.combine.args;
    ForwardArgs& gradients = segments.gradients.args;
    CombineArgs& reversed = segments.combine_gradients.args;
    backward.elapsed = first.elapsed = workspace.allocate(segments.elapsed_bytes);
    backward.states = first.states = combine.states = workspace.allocate(segments.states_bytes);
    first.seconds = workspace.allocate(segments.seconds_bytes);
    combine.seconds = reversed.seconds = gradients.seconds = first.seconds;
    gradients.states = reversed.states = workspace.allocate(segments.states_bytes);
    backward.states_gradient = gradients.states;
  }
  return with_float(backward.problem.dtype,
                    [&](auto type) { return run<decltype(type)>(plan, stream); });
}

}  // namespace gpuopt::selective
