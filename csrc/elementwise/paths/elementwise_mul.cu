// gpuopt::mul on the element-wise engine.
#include "elementwise/elementwise.h"
#include "elementwise/paths/elementwise_launch.cuh"

namespace gpuopt::elementwise {
namespace {

// A product of two fp16 or bf16 values is exact in fp32 (22 and 16 significant bits). The two-value
// instructions round the exact product once, so they give the same bits as fp32 arithmetic.
template <typename C>
struct Mul {
  static constexpr int kInputs = 2;
  __device__ C operator()(C a, C b) const {
    if constexpr (std::is_same_v<C, bool>) {
      return a & b;
    } else {
      return a * b;
    }
  }
  __device__ __half2 operator()(__half2 a, __half2 b) const { return __hmul2(a, b); }
  __device__ __nv_bfloat162 operator()(__nv_bfloat162 a, __nv_bfloat162 b) const {
    return __hmul2(a, b);
  }
};

}  // namespace

// Types::kAll: masks, counts and spectra (bool, integer, complex) are multiplied in every layout,
// too.
cudaError_t mul(const Plan<2, Types::kAll>& plan, cudaStream_t stream) {
  return launch<Mul>(plan, stream);
}

}  // namespace gpuopt::elementwise
