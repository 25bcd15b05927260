// What a launch needs besides its kernel and arguments.
#pragma once

#include <cstddef>

namespace gpuopt {

struct LaunchShape {
  unsigned blocks = 1;
  unsigned threads = 1;
  size_t shared_bytes = 0;
  bool overlaps_before = false;  // the kernel calls wait_for_grid_before()
};

}  // namespace gpuopt
