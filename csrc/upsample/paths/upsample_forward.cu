// Launches the kernels that plans of the forward name.
#include "common/launch.cuh"
#include "upsample/paths/upsample_forward.cuh"
#include "upsample/upsample.h"

namespace gpuopt::upsample {
namespace {

template <typename Unit, int kRepeat>
cudaError_t launch_path(const ForwardPlan& plan, cudaStream_t stream) {
  const auto start = [&](auto kernel) {
    return launch_kernel(kernel, plan.launch, stream, plan.args);
  };
  switch (plan.path) {
    case ForwardPath::kVecs:
      if constexpr (kRepeat > 1 || sizeof(Unit) == kAccessBytes) {
        return start(forward_vecs_kernel<Unit, kRepeat>);
      }
      break;
    case ForwardPath::kRows:
      if constexpr (sizeof(Unit) <= 4 && kRepeat == 1) return start(forward_rows_kernel<Unit>);
      break;
    case ForwardPath::kImages:
      if constexpr (sizeof(Unit) <= 4 && kRepeat == 1) return start(forward_images_kernel<Unit>);
      break;
    case ForwardPath::kGather:
      if constexpr (kRepeat > 1) {
        return start(forward_gather_kernel<Unit, kRepeat, false, false>);
      } else if (plan.args.pixel_units.divisor > 1) {
        return plan.long_rows ? start(forward_gather_kernel<Unit, 1, true, true>)
                              : start(forward_gather_kernel<Unit, 1, true, false>);
      } else {
        return plan.long_rows ? start(forward_gather_kernel<Unit, 1, false, true>)
                              : start(forward_gather_kernel<Unit, 1, false, false>);
      }
  }
  return cudaErrorInvalidValue;
}

template <typename Unit>
cudaError_t launch_part(const ForwardPlan& plan, cudaStream_t stream) {
  constexpr int kUnits = kAccessBytes / sizeof(Unit);
  if constexpr (kUnits >= 8) {
    if (plan.repeat == 8) return launch_path<Unit, 8>(plan, stream);
  }
  if constexpr (kUnits >= 4) {
    if (plan.repeat == 4) return launch_path<Unit, 4>(plan, stream);
  }
  if constexpr (kUnits >= 2) {
    if (plan.repeat == 2) return launch_path<Unit, 2>(plan, stream);
  }
  return launch_path<Unit, 1>(plan, stream);
}

cudaError_t launch_part(const ForwardPlan& plan, cudaStream_t stream) {
  switch (plan.unit_bytes) {
    case 1:
      return launch_part<uint8_t>(plan, stream);
    case 2:
      return launch_part<uint16_t>(plan, stream);
    case 4:
      return launch_part<uint32_t>(plan, stream);
    case 8:
      return launch_part<uint2>(plan, stream);
    case 16:
      return launch_part<uint4>(plan, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t launch(const ForwardPlan& plan, cudaStream_t stream) {
  for (const ForwardPlan* part = &plan; part != nullptr; part = part->rest.get()) {
    const cudaError_t error = launch_part(*part, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace gpuopt::upsample
