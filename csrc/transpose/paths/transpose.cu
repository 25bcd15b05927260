// Launches the kernel that a plan names.
#include "common/launch.cuh"
#include "transpose/paths/transpose_strips.cuh"
#include "transpose/paths/transpose_tiles.cuh"
#include "transpose/transpose.h"

namespace gpuopt::transpose {
namespace {

// Elements in a 4-byte word; 1 for larger elements.
template <typename T>
constexpr int kWord = sizeof(T) < 4 ? 4 / sizeof(T) : 1;

template <typename T, int N>
cudaError_t launch_strips(const Plan& plan, cudaStream_t stream) {
  const auto run = [&](auto* kernel) {
    return launch_kernel(kernel, plan.shape, stream, plan.args);
  };
  if (plan.out_bytes == kAccessBytes) return run(strips_kernel<T, N, kVecSize<T>>);
  if (sizeof(T) < 4 && plan.out_bytes == 4) return run(strips_kernel<T, N, kWord<T>>);
  return run(strips_kernel<T, N, 1>);
}

template <typename T>
cudaError_t launch(const Plan& plan, cudaStream_t stream) {
  switch (plan.path) {
    case Path::kEngine:
      return cudaErrorInvalidValue;
    case Path::kTiles:
      if constexpr (sizeof(T) <= 8) {
        return launch_kernel(plan.aligned ? tiles_kernel<T, true> : tiles_kernel<T, false>,
                             plan.shape, stream, plan.args);
      }
      return cudaErrorInvalidValue;
    case Path::kStrips:
      return plan.in_bytes == kAccessBytes ? launch_strips<T, kVecSize<T>>(plan, stream)
                                           : launch_strips<T, kWord<T>>(plan, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t transpose(const Plan& plan, cudaStream_t stream) {
  switch (plan.item) {
    case 1:
      return launch<uint8_t>(plan, stream);
    case 2:
      return launch<uint16_t>(plan, stream);
    case 4:
      return launch<uint32_t>(plan, stream);
    case 8:
      return launch<uint64_t>(plan, stream);
    case 16:
      return launch<uint4>(plan, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace gpuopt::transpose
