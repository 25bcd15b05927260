// What the override has to know of CUDA.
#include <c10/cuda/CUDAGraphsC10Utils.h>

#include "override/transposes.h"

namespace gpuopt::overriding {
namespace {

bool is_recording() {
  return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}

[[maybe_unused]] const bool is_set = (is_capturing = is_recording, true);

}  // namespace
}  // namespace gpuopt::overriding
