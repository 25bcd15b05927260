// Launches the kernels that plans name.
#include "common/floats.cuh"
#include "pad/pad.h"
#include "pad/pad_copy.cuh"
#include "pad/pad_sum.cuh"

namespace gpuopt::pad {

template <typename Unit>
cudaError_t copy_units(const CopyPlan& plan, cudaStream_t stream) {
  if constexpr (sizeof(Unit) < kAccessBytes) {
    if (plan.is_dense) {
      return launch_kernel(copy_runs<DensePiece<Unit>, Nothing>, plan.shape, stream, plan.args,
                           Nothing::Args{});
    }
  }
  return launch_kernel(copy_runs<Piece<Unit>, Nothing>, plan.shape, stream, plan.args,
                       Nothing::Args{});
}

cudaError_t copy(const CopyPlan& plan, cudaStream_t stream) {
  switch (plan.unit) {
    case 1:
      return copy_units<uint8_t>(plan, stream);
    case 2:
      return copy_units<uint16_t>(plan, stream);
    case 4:
      return copy_units<uint32_t>(plan, stream);
    case 8:
      return copy_units<uint64_t>(plan, stream);
    default:
      return copy_units<uint4>(plan, stream);
  }
}

cudaError_t sum(const SumPlan& plan, DType dtype, cudaStream_t stream) {
  return with_float(dtype, [&](auto zero) {
    using T = decltype(zero);
    using Unit = std::conditional_t<sizeof(T) == 2, uint16_t,
                                    std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;
    return launch_kernel(copy_runs<Piece<Unit>, Sums<T>>, plan.copy.shape, stream, plan.copy.args,
                         plan.args);
  });
}

}  // namespace gpuopt::pad
