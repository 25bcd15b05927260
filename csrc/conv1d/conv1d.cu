// Problem -> plan -> the launcher of its dtype; and those of float32.
#include "conv1d/conv1d_dispatch.h"
#include "conv1d/conv1d_launch_gather.cuh"
#include "conv1d/conv1d_launch_weight.cuh"

namespace gpuopt::conv1d {
namespace {

// Halves of a problem whose launch would be too large: of its images, else of its groups.
void cut(const Problem& problem, Problem& first, Problem& second) {
  first = second = problem;
  const bool images = problem.batch > 1;
  int64_t& count = images ? first.batch : first.groups;
  int64_t& rest = images ? second.batch : second.groups;
  count /= 2;
  rest -= count;
  const auto item = static_cast<int64_t>(size_of(problem.dtype));
  for (Signal* signal : {&second.from, &second.to}) {
    const int64_t stride =
        images ? signal->batch_stride : signal->channels * signal->channel_stride;
    signal->data = static_cast<char*>(signal->data) + count * stride * item;
  }
  if (images) return;
  second.weight.data =
      static_cast<char*>(second.weight.data) + count * problem.weight.group_stride * item;
  if (second.bias != nullptr) {
    second.bias = static_cast<const char*>(second.bias) +
                  count * problem.to.channels * problem.bias_stride * item;
  }
}

// Kernels count blocks with 31 bits, and lanes, or where neighbours are of one row groups of these.
bool fits(const Plan& plan) {
  if (plan.blocks > kMaxIndex32) return false;
  const int64_t most = kMaxIndex32 - kThreads;
  switch (plan.path) {
    case Path::kChunks:
    case Path::kRows:
      return plan.lanes <= most;
    case Path::kValues:
      return plan.lanes / plan.row_width <= most;
    default:
      return true;
  }
}

template <typename Start>
cudaError_t in_parts(const Problem& problem, Pass pass, const Device& device, const Start& start) {
  const Plan plan = make_plan(problem, pass, device);
  if (fits(plan)) return start(problem, plan);
  if (problem.batch == 1 && problem.groups == 1) return cudaErrorInvalidValue;
  Problem first, second;
  cut(problem, first, second);
  const cudaError_t error = in_parts(first, pass, device, start);
  return error != cudaSuccess ? error : in_parts(second, pass, device, start);
}

}  // namespace

const Launchers& launchers_of_float() {
  static constexpr Launchers launchers = {
      launch_forward<float>,
      launch_gather<float>,
      launch_weight<float>,
      launch_update<float>,
  };
  return launchers;
}

cudaError_t forward(const Problem& problem, const Device& device, cudaStream_t stream) {
  return in_parts(problem, Pass::kForward, device, [&](const Problem& part, const Plan& plan) {
    return launchers_of(part.dtype).forward(part, plan, stream);
  });
}

cudaError_t backward_input(const Problem& problem, const Device& device, cudaStream_t stream) {
  return in_parts(problem, Pass::kBackwardInput, device,
                  [&](const Problem& part, const Plan& plan) {
                    const Launchers& launchers = launchers_of(part.dtype);
                    return detail::has_unit_step(part) && plan.path != Path::kFanGradients
                               ? launchers.forward(detail::transposed(part), plan, stream)
                               : launchers.gather(part, plan, stream);
                  });
}

cudaError_t backward_weight(const Problem& problem, const Device& device, Workspace& workspace,
                            cudaStream_t stream) {
  const Plan plan = make_plan(problem, Pass::kBackwardWeight, device);
  if (plan.blocks > INT32_MAX) return cudaErrorInvalidValue;  // sums can't be cut
  return launchers_of(problem.dtype).weight(problem, plan, workspace, stream);
}

cudaError_t update(const UpdateProblem& problem, cudaStream_t stream) {
  return launchers_of(problem.dtype).update(problem, stream);
}

}  // namespace gpuopt::conv1d
