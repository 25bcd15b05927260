// gpuopt::index_add: launches the kernels of a plan.
#include "index_add/device/index_add_launch.cuh"
#include "index_add/index_add.h"

namespace gpuopt::index_add {

// The launchers of a type's plans are instantiated in index_add_float.cu, _half.cu and _integer.cu.
cudaError_t launch(const Plan& plan, Workspace& workspace, cudaStream_t stream) {
  return dispatch_storage(plan.dtype, [&](auto value) {
    using T = decltype(value);
    if constexpr (kCategory<T> == Category::kComplex) {
      return cudaErrorInvalidValue;  // complex numbers are two real parts
    } else {
      return std::visit([&](const auto& path) { return launch<T>(path, workspace, stream); },
                        plan.path);
    }
  });
}

}  // namespace gpuopt::index_add
