// A copy between tensors of any strides, on the element-wise engine. transpose2d calls it. Elements
// are moved as bits, so only their size matters.
#include "elementwise/elementwise.h"
#include "elementwise/paths/elementwise_launch.cuh"

namespace gpuopt::elementwise {
namespace {

template <typename C>
struct Copy {
  static constexpr int kInputs = 1;
  __device__ C operator()(C x) const { return x; }
};

template <typename T>
cudaError_t copy_as(const Plan<1, Types::kAll>& plan, cudaStream_t stream) {
  return launch_as<T>(Copy<compute_t<T>>{}, plan, stream);
}

}  // namespace

// One type per element size stands for all dtypes of that size, so every type needs every path.
cudaError_t copy(const Plan<1, Types::kAll>& plan, cudaStream_t stream) {
  switch (plan.dtype) {
    case DType::kUInt8:
      return copy_as<uint8_t>(plan, stream);
    case DType::kInt16:
      return copy_as<uint16_t>(plan, stream);
    case DType::kInt32:
      return copy_as<uint32_t>(plan, stream);
    case DType::kInt64:
      return copy_as<uint64_t>(plan, stream);
    case DType::kComplex128:
      return copy_as<Complex<double>>(plan, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace gpuopt::elementwise
