// The launchers for integers.
#include "dot/paths/dot_launch.cuh"
#include "dot/paths/dot_types.h"

namespace gpuopt::dot {

// Sums wrap around, so signed and unsigned integers of one width give the same bits.
cudaError_t dot_integer(const Problem& problem, const Plan& plan, Workspace& workspace,
                        cudaStream_t stream) {
  switch (size_of(problem.dtype)) {
    case 1:
      return launch<uint8_t>(problem, plan, workspace, stream);
    case 2:
      return launch<uint16_t>(problem, plan, workspace, stream);
    case 4:
      return launch<uint32_t>(problem, plan, workspace, stream);
    default:
      return launch<uint64_t>(problem, plan, workspace, stream);
  }
}

}  // namespace gpuopt::dot
