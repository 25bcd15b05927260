// Temporary device memory for launchers.
#pragma once

#include <cstddef>

namespace gpuopt {

// Allocates temporary device memory, aligned to 16 bytes. It stays valid until the work that the
// launcher enqueues has finished.
class Workspace {
 public:
  virtual ~Workspace() = default;
  virtual void* allocate(size_t bytes) = 0;
  // Frees all allocations: work that is enqueued later may reuse their memory.
  virtual void release() = 0;
};

}  // namespace gpuopt
