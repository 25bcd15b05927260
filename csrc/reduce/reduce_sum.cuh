// What the sums of all types share.
#pragma once

#include "reduce/reduce_launch.cuh"
#include "reduce/reduce_reducers.cuh"

namespace gpuopt::reduce {

// What values of a type are summed in: 64 bits for integers, f32 for the half types and f32.
template <typename Mid>
using Accumulator = std::conditional_t<
    (kCategory<Mid> <= Category::kInteger), int64_t,
    std::conditional_t<
        std::is_same_v<Mid, __half> || std::is_same_v<Mid, __nv_bfloat16>, float,
        std::conditional_t<std::is_same_v<Mid, Complex<__half>>, Complex<float>, Mid>>>;

// A call of sum(), as a sum of values that are stored as In and converted to Mid first.
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

// Values of any type, summed as 64-bit integers.
cudaError_t sum_integers(const SumCall& call);

}  // namespace gpuopt::reduce
