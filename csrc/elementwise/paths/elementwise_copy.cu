// A copy between tensors of any strides, on the element-wise engine. transpose2d calls it. Elements
// are moved as bits, so only their size matters.
#include "elementwise/elementwise.h"
#include "elementwise/paths/elementwise_launch.cuh"

namespace gpuopt::elementwise {
namespace {

// One type per element size stands for all dtypes of that size, so every type needs every path.
template <typename C>
struct Copy : EveryType {
  static constexpr int kInputs = 1;
  __device__ C operator()(C x) const { return x; }
};

template <typename T>
cudaError_t copy_as(DType dtype, Problem problem, cudaStream_t stream) {
  problem.dtype = dtype;
  for (int k = 0; k <= problem.num_inputs; ++k) problem.operands[k].dtype = dtype;
  return run<Copy<compute_t<T>>, T>({}, problem, stream);
}

}  // namespace

cudaError_t copy(const Problem& problem, cudaStream_t stream) {
  if (problem.operands[1].dtype != problem.operands[0].dtype) return cudaErrorInvalidValue;
  switch (size_of(problem.operands[0].dtype)) {
    case 1:
      return copy_as<uint8_t>(DType::kUInt8, problem, stream);
    case 2:
      return copy_as<uint16_t>(DType::kInt16, problem, stream);
    case 4:
      return copy_as<uint32_t>(DType::kInt32, problem, stream);
    case 8:
      return copy_as<uint64_t>(DType::kInt64, problem, stream);
    default:
      return copy_as<Complex<double>>(DType::kComplex128, problem, stream);
  }
}

}  // namespace gpuopt::elementwise
