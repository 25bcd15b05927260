// The entry point of the kernels: chooses the launcher for each dtype.
#include "common/types.cuh"
#include "dot/paths/dot_launch.h"

namespace gpuopt::dot {
namespace {

// Integer sums wrap around, so signed and unsigned integers of one width give the same bits.
cudaError_t launch_typed(const Plan& plan, Workspace& workspace, cudaStream_t stream) {
  switch (plan.dtype) {
    case DType::kUInt8:
    case DType::kInt8:
      return launch_part<uint8_t>(plan, workspace, stream);
    case DType::kInt16:
      return launch_part<uint16_t>(plan, workspace, stream);
    case DType::kInt32:
      return launch_part<uint32_t>(plan, workspace, stream);
    case DType::kInt64:
      return launch_part<uint64_t>(plan, workspace, stream);
    case DType::kFloat16:
      return launch_part<__half>(plan, workspace, stream);
    case DType::kBFloat16:
      return launch_part<__nv_bfloat16>(plan, workspace, stream);
    case DType::kFloat32:
      return launch_part<float>(plan, workspace, stream);
    case DType::kFloat64:
      return launch_part<double>(plan, workspace, stream);
    case DType::kComplex64:
      return launch_part<Complex<float>>(plan, workspace, stream);
    case DType::kComplex128:
      return launch_part<Complex<double>>(plan, workspace, stream);
    case DType::kBool:
    case DType::kComplex32:
      break;
  }
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t launch(const Plan& plan, Workspace& workspace, cudaStream_t stream) {
  for (const Plan* part = &plan; part != nullptr; part = part->rest.get()) {
    const cudaError_t error = launch_typed(*part, workspace, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace gpuopt::dot
