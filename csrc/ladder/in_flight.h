// A copy that has a given number of bytes under way at a time: the lesson of latency and occupancy.
// Little's law: what is under way is what comes per second times how long each takes (J. D. C.
// Little, "A Proof for the Queuing Formula L = lambda W", Operations Research 9, 1961; for GPUs
// Vasily Volkov, "Better Performance at Lower Occupancy", GTC 2010). A memory of 4 TB/s that
// answers after a microsecond is busy with 4 MB under way, whoever they are of: many threads, many
// loads of a thread, or wide ones.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/export.h"

namespace gpuopt::in_flight {

struct Shape {
  int access_bytes = 16;  // 4, 8 or 16
  int loads = 1;          // of a thread before its first store: 1, 2, 4 or 8
  int warps = 1;          // of a SM: a power of 2, 1 to 64
};

constexpr bool is_shape(const Shape& shape) {
  const auto one_of = [](int value, int least, int most) {
    return value >= least && value <= most && (value & (value - 1)) == 0;
  };
  return one_of(shape.access_bytes, 4, 16) && one_of(shape.loads, 1, 8) &&
         one_of(shape.warps, 1, 64);
}

// to = from, `bytes` of them, both aligned to 16 bytes, by one grid of so many warps for each
// SM. They are there at a time where registers allow it: 64 warps of 8 loads of 16
// bytes each are not.
GPUOPT_EXPORT cudaError_t copy(const void* from, void* to, int64_t bytes, const Shape& shape,
                               int sms, cudaStream_t stream);

}  // namespace gpuopt::in_flight
