// Shared by the sums of all types.
#pragma once

#include "scan/paths/scan_launch.cuh"

namespace gpuopt::scan {

// The type in which values of type Mid are summed: int64 for integers, f32 for f16 and bf16.
template <typename Mid>
using Accumulator = std::conditional_t<
    (kCategory<Mid> <= Category::kInteger), int64_t,
    std::conditional_t<std::is_same_v<Mid, __half> || std::is_same_v<Mid, __nv_bfloat16>, float,
                       Mid>>;

// The arguments of cumsum(). as<In, Mid>() runs it for values that are stored as In and converted
// to Mid, the type of the results.
struct SumCall {
  const Plan& plan;
  Workspace& workspace;
  cudaStream_t stream;

  template <typename In, typename Mid>
  cudaError_t as() const {
    return run<In, Mid>(Sum<Accumulator<Mid>>{}, plan, workspace, stream);
  }
};

// Sums values of any stored type as 64-bit integers.
cudaError_t sum_integers(const SumCall& call);

}  // namespace gpuopt::scan
