// Launches a plan.
#include "conv1d/conv1d.h"

namespace gpuopt::conv1d {

cudaError_t launch(const Plan& plan, void* to, Workspace& workspace, cudaStream_t stream) {
  for (const Plan* part = &plan; part != nullptr; part = part->rest.get()) {
    void* const own = static_cast<char*>(to) + part->offset;
    const cudaError_t error = std::visit(
        [&](const auto& path) {
          if constexpr (std::is_same_v<decltype(path), const WeightGradientPath&>) {
            return launch(path, part->dtype, own, workspace, stream);
          } else {
            return launch(path, part->dtype, own, stream);
          }
        },
        part->path);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace gpuopt::conv1d
