// A copy with a chosen number of bytes in flight: the lesson of latency and occupancy.
//
// Little's law: bytes in flight = bandwidth x latency (J. D. C. Little, "A Proof for the Queuing
// Formula L = lambda W", Operations Research 9, 1961; for GPUs Vasily Volkov, "Better Performance
// at Lower Occupancy", GTC 2010). A memory of 4 TB/s with a latency of one microsecond is busy with
// 4 MB in flight. They may come from many threads, from many loads per thread, or from wide loads.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/export.h"

namespace gpuopt::in_flight {

struct Shape {
  int access_bytes = 16;  // bytes of a load: 4, 8 or 16
  int loads = 1;          // loads of a thread before its first store: 1, 2, 4 or 8
  int warps = 1;          // warps on each SM: a power of 2 from 1 to 64
};

constexpr bool is_shape(const Shape& shape) {
  const auto one_of = [](int value, int least, int most) {
    return value >= least && value <= most && (value & (value - 1)) == 0;
  };
  return one_of(shape.access_bytes, 4, 16) && one_of(shape.loads, 1, 8) &&
         one_of(shape.warps, 1, 64);
}

// Copies `bytes` bytes with one grid of shape.warps warps per SM. Both addresses are aligned to 16
// bytes. All warps are resident at once if there are enough registers, which is not so for 64 warps
// with 8 loads of 16 bytes.
GPUOPT_EXPORT cudaError_t copy(const void* from, void* to, int64_t bytes, const Shape& shape,
                               int sms, cudaStream_t stream);

}  // namespace gpuopt::in_flight
