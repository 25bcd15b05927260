// Launches the kernels that plans of the backward name.
#include "common/launch.cuh"
#include "upsample/paths/upsample_backward_factor.cuh"
#include "upsample/paths/upsample_backward_pixels.cuh"
#include "upsample/paths/upsample_backward_tiles.cuh"
#include "upsample/upsample.h"

namespace gpuopt::upsample {
namespace {

template <typename T, int kFactor, int kRows>
cudaError_t launch_factor(const BackwardPlan& plan, cudaStream_t stream) {
  return launch_kernel(backward_factor_kernel<T, kFactor, kRows>, plan.launch, stream, plan.args);
}

template <typename T, int kFactor>
cudaError_t launch_factor(const BackwardPlan& plan, cudaStream_t stream) {
  return plan.rows_per_thread == 2 ? launch_factor<T, kFactor, 2>(plan, stream)
                                   : launch_factor<T, kFactor, 1>(plan, stream);
}

template <typename T>
cudaError_t launch_factor(const BackwardPlan& plan, cudaStream_t stream) {
  if constexpr (kVecSize<T> >= 8) {
    if (plan.factor == 8) return launch_factor<T, 8>(plan, stream);
  }
  if constexpr (kVecSize<T> >= 4) {
    if (plan.factor == 4) return launch_factor<T, 4>(plan, stream);
  }
  return launch_factor<T, 2>(plan, stream);
}

template <typename T, int kColumns = kLeastColumns>
cudaError_t launch_tiles(const BackwardPlan& plan, cudaStream_t stream) {
  if constexpr (kColumns < kMostColumns) {
    if (plan.most > kColumns) return launch_tiles<T, kColumns + 1>(plan, stream);
  }
  return launch_kernel(backward_tiles_kernel<T, kColumns, true>, plan.launch, stream, plan.args);
}

template <typename T, int kElements, int kMost>
cudaError_t launch_windows(const BackwardPlan& plan, cudaStream_t stream) {
  constexpr int kBytes = sizeof(T) * kElements;
  constexpr int kAtOnce = images_at_once(kBytes, kMost);
  return plan.at_once == kAtOnce
             ? launch_kernel(backward_windows_kernel<T, kElements, kMost, kAtOnce>, plan.launch,
                             stream, plan.args)
             : launch_kernel(backward_windows_kernel<T, kElements, kMost, 1>, plan.launch, stream,
                             plan.args);
}

template <typename T, int kElements>
cudaError_t launch_units(const BackwardPlan& plan, cudaStream_t stream) {
  if (plan.path == BackwardPath::kPixels) {
    return launch_kernel(backward_pixels_kernel<T, kElements>, plan.launch, stream, plan.args);
  }
  if (plan.most == 1) return launch_windows<T, kElements, 1>(plan, stream);
  if (plan.most == 2) return launch_windows<T, kElements, 2>(plan, stream);
  if (plan.most == 3) return launch_windows<T, kElements, 3>(plan, stream);
  return launch_windows<T, kElements, kMostCopies>(plan, stream);
}

template <typename T>
cudaError_t launch_typed(const BackwardPlan& plan, cudaStream_t stream) {
  if constexpr (sizeof(T) > 1) {
    if (plan.path == BackwardPath::kFactor) return launch_factor<T>(plan, stream);
    if (plan.path == BackwardPath::kTiles) {
      return plan.args.pixel_units.divisor == 1
                 ? launch_tiles<T>(plan, stream)
                 : launch_kernel(backward_tiles_kernel<T, kLaneColumns, false>, plan.launch, stream,
                                 plan.args);
    }
    if constexpr (kVecSize<T> >= 8) {
      if (plan.elements == 8) return launch_units<T, 8>(plan, stream);
    }
    if constexpr (kVecSize<T> >= 4) {
      if (plan.elements == 4) return launch_units<T, 4>(plan, stream);
    }
    if (plan.elements == 2) return launch_units<T, 2>(plan, stream);
  }
  return launch_units<T, 1>(plan, stream);
}

cudaError_t launch_part(const BackwardPlan& plan, cudaStream_t stream) {
  switch (plan.dtype) {
    case DType::kUInt8:
      return launch_typed<uint8_t>(plan, stream);
    case DType::kFloat16:
      return launch_typed<__half>(plan, stream);
    case DType::kBFloat16:
      return launch_typed<__nv_bfloat16>(plan, stream);
    case DType::kFloat32:
      return launch_typed<float>(plan, stream);
    case DType::kFloat64:
      return launch_typed<double>(plan, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t launch(const BackwardPlan& plan, cudaStream_t stream) {
  for (const BackwardPlan* part = &plan; part != nullptr; part = part->rest.get()) {
    const cudaError_t error = launch_part(*part, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace gpuopt::upsample
