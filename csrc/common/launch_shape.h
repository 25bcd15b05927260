// What a launch needs besides its kernel and arguments.
#pragma once

#include <cstddef>

namespace gpuopt {

struct LaunchShape {
  unsigned blocks = 1;
  unsigned threads = 1;
  size_t shared_bytes = 0;
  bool use_pdl = false;  // the kernel calls grid_dependency_wait()
};

}  // namespace gpuopt
