// Replaces csrc/common/launch.cuh. launch_kernel() runs the kernel on the CPU.
#pragma once

#include "common/launch_shape.h"

namespace emulator {

struct Launched {
  const void* kernel;
  int64_t threads;  // in all blocks together
};
inline std::vector<Launched> launched;  // launch_kernel() adds to it

}  // namespace emulator

namespace gpuopt {

template <typename... Parameters, typename... Arguments>
cudaError_t launch_kernel(void (*kernel)(Parameters...), const LaunchShape& shape, cudaStream_t,
                          const Arguments&... arguments) {
  emulator::launched.push_back(
      {reinterpret_cast<const void*>(kernel), int64_t{shape.blocks} * shape.threads});
  if (shape.shared_bytes > emulator::most_shared_bytes) abort();
  emulator::shared_bytes = shape.shared_bytes;
  emulator::launch(shape.blocks, shape.threads, [&] { kernel(arguments...); });
  return cudaSuccess;
}

inline void launch_dependents() {}
inline void launch_next() {}
inline void grid_dependency_wait() {}

}  // namespace gpuopt
