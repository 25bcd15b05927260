// gpuopt::index_add of integers and booleans.
#include "index_add/index_add_launch.cuh"

namespace gpuopt::index_add {

cudaError_t add_integers(const Addition& addition, const Plan& plan) {
  switch (size_of(addition.problem.dtype)) {
    case 1:
      return addition.problem.dtype == DType::kBool ? launch<Bool>(addition, plan)
                                                    : launch<uint8_t>(addition, plan);
    case 2:
      return launch<uint16_t>(addition, plan);
    case 4:
      return launch<uint32_t>(addition, plan);
    default:
      return launch<uint64_t>(addition, plan);
  }
}

}  // namespace gpuopt::index_add
