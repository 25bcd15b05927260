// The configuration of a launch.
#pragma once

#include <cstddef>

namespace gpuopt {

// Larger grids of blocks that move 4 KB or less do not overlap the launch before them: see
// launch_next(). Overlapped, x * 2.5 in fp32 took 5.60 us in 4224 blocks and 8.33 in 6336,
// else 5.96 and 8.00 (H200, 2026-11-28).
constexpr unsigned kMostOverlappingBlocks = 1 << 12;

struct LaunchShape {
  unsigned blocks = 1;
  unsigned threads = 1;
  size_t shared_bytes = 0;
  bool use_pdl = false;  // only for kernels that call grid_dependency_wait()
  unsigned cluster = 1;  // blocks of a cluster. More than 1 only on devices that have clusters
};

}  // namespace gpuopt
