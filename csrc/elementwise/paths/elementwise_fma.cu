// gpuopt::fma on the element-wise engine.
#include "elementwise/elementwise.h"
#include "elementwise/paths/elementwise_launch.cuh"

namespace gpuopt::elementwise {
namespace {

template <typename C>
struct Fma {
  static constexpr int kInputs = 3;
  __device__ C operator()(C a, C b, C c) const {
    if constexpr (std::is_floating_point_v<C>) {
      return ::fma(a, b, c);
    } else {
      return a * b + c;
    }
  }
};

}  // namespace

cudaError_t fma(const Plan<3>& plan, cudaStream_t stream) { return launch<Fma>(plan, stream); }

}  // namespace gpuopt::elementwise
