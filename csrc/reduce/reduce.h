// Reductions of strided tensors: the contract between bindings and kernels. Launchers enqueue on
// `stream` of the current device and never synchronise.
#pragma once

#include <cuda_runtime_api.h>

#include "reduce/reduce_plan.h"

namespace gpuopt::reduce {

// Where partial results of split reductions go: device memory that stays valid until what the
// launcher enqueued is done. Aligned to 16 bytes.
class Workspace {
 public:
  virtual ~Workspace() = default;
  virtual void* allocate(size_t bytes) = 0;
};

// out = (sum of the values) / divisor; divisor is 1 for integers
cudaError_t sum(const Problem& problem, double divisor, const Device& device, Workspace& workspace,
                cudaStream_t stream);
cudaError_t max(const Problem& problem, const Device& device, Workspace& workspace,
                cudaStream_t stream);
cudaError_t min(const Problem& problem, const Device& device, Workspace& workspace,
                cudaStream_t stream);

}  // namespace gpuopt::reduce
