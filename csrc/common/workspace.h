// Memory that launchers need beside their operands.
#pragma once

#include <cstddef>

namespace gpuopt {

// Device memory that stays valid until what the launcher enqueued is done. Aligned to 16 bytes.
class Workspace {
 public:
  virtual ~Workspace() = default;
  virtual void* allocate(size_t bytes) = 0;
  // What was allocated may be used again by what is enqueued from here on.
  virtual void release() = 0;
};

}  // namespace gpuopt
