// The configuration of a launch.
#pragma once

#include <cstddef>

namespace gpuopt {

struct LaunchShape {
  unsigned blocks = 1;
  unsigned threads = 1;
  size_t shared_bytes = 0;
  bool use_pdl = false;  // only for kernels that call grid_dependency_wait()
  unsigned cluster = 1;  // blocks of a cluster. More than 1 only on devices that have clusters
};

}  // namespace gpuopt
