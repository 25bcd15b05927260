// Shared by the sums of all types.
#pragma once

#include "reduce/device/reduce_reducers.cuh"
#include "reduce/paths/reduce_launch.cuh"

namespace gpuopt::reduce {

// The type in which values of type Mid are summed: int64 for integers, f32 for f16, bf16 and f32.
template <typename Mid>
using Accumulator = std::conditional_t<
    (kCategory<Mid> <= Category::kInteger), int64_t,
    std::conditional_t<
        std::is_same_v<Mid, __half> || std::is_same_v<Mid, __nv_bfloat16>, float,
        std::conditional_t<std::is_same_v<Mid, Complex<__half>>, Complex<float>, Mid>>>;

// The arguments of sum(). as<In, Mid>() runs it for values that are stored as In and converted to
// Mid before they are summed.
struct SumCall {
  const Problem& problem;
  double divisor;
  const Device& device;
  Workspace& workspace;
  cudaStream_t stream;

  template <typename In, typename Mid>
  cudaError_t as() const {
    using V = Accumulator<Mid>;
    return run<In, Mid>(Sum<V>{divisor}, problem, device, workspace, stream);
  }
};

// Sums values of any stored type as 64-bit integers.
cudaError_t sum_integers(const SumCall& call);

}  // namespace gpuopt::reduce
