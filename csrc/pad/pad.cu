// Launches the kernels that plans name.
#include "pad/pad.cuh"
#include "pad/pad.h"

namespace gpuopt::pad {

cudaError_t copy(const CopyPlan& plan, cudaStream_t stream) {
  const auto launch = [&](auto* kernel) {
    return launch_kernel(kernel, plan.shape, stream, plan.args);
  };
  switch (plan.item) {
    case 0:
      return launch(copy_runs<0>);
    case 1:
      return launch(copy_runs<1>);
    case 2:
      return launch(copy_runs<2>);
    case 4:
      return launch(copy_runs<4>);
    case 8:
      return launch(copy_runs<8>);
    default:
      return launch(copy_runs<16>);
  }
}

cudaError_t sum(const SumPlan& plan, DType dtype, cudaStream_t stream) {
  return with_float(dtype, [&](auto type) {
    return launch_kernel(sum_copies<decltype(type)>, plan.shape, stream, plan.args);
  });
}

}  // namespace gpuopt::pad
