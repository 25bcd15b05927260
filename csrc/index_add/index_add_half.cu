// gpuopt::index_add of float16 and bfloat16.
#include "index_add/index_add_launch.cuh"

namespace gpuopt::index_add {

cudaError_t add_halves(const Addition& addition, const Plan& plan) {
  return addition.problem.dtype == DType::kFloat16 ? launch<__half>(addition, plan)
                                                   : launch<__nv_bfloat16>(addition, plan);
}

}  // namespace gpuopt::index_add
