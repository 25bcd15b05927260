#pragma once

namespace gpuopt {

// The properties of a GPU that a plan depends on.
struct Device {
  int sms = 1;
  int shared_bytes = 48 << 10;  // the most shared memory of a block
  bool has_clusters = false;    // whether the blocks of a launch may form clusters
};

}  // namespace gpuopt
