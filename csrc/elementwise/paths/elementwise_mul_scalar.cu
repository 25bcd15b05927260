// gpuopt::mul by a number, on the element-wise engine.
#include "elementwise/elementwise.h"
#include "elementwise/paths/elementwise_launch.cuh"

namespace gpuopt::elementwise {
namespace {

template <typename C>
struct MulScalar {
  static constexpr int kInputs = 1;
  C other;
  __device__ C operator()(C a) const { return a * other; }
};

}  // namespace

cudaError_t mul_scalar(const Plan<1>& plan, const ScalarValue& other, cudaStream_t stream) {
  return launch<MulScalar>(plan, stream, other);
}

}  // namespace gpuopt::elementwise
