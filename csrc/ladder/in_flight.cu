// The kernel of in_flight.h. docs/ladder shows the code between two equal marks in brackets.
#include "common/vec.cuh"
#include "ladder/in_flight.h"

namespace gpuopt::in_flight {
namespace {

// [copy_in_flight]
// An iteration issues all its loads before its first store, which waits for the first load.
template <typename Word, int kLoads>
__global__ void copy_kernel(const Word* from, Word* to, int64_t words) {
  const int64_t threads = int64_t{gridDim.x} * blockDim.x;
  int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (; i + (kLoads - 1) * threads < words; i += kLoads * threads) {
    Word loaded[kLoads];
#pragma unroll
    for (int k = 0; k < kLoads; ++k) loaded[k] = from[i + k * threads];
#pragma unroll
    for (int k = 0; k < kLoads; ++k) to[i + k * threads] = loaded[k];
  }
  for (; i < words; i += threads) to[i] = from[i];
}
// [copy_in_flight]

template <typename Word, int kLoads>
cudaError_t launch(const void* from, void* to, int64_t bytes, int warps, int sms,
                   cudaStream_t stream) {
  constexpr int kMostWarps = 8;  // per block
  const int block_warps = warps < kMostWarps ? warps : kMostWarps;
  const auto blocks = static_cast<unsigned>(sms * (warps / block_warps));
  const int threads = 32 * block_warps;
  copy_kernel<Word, kLoads><<<blocks, threads, 0, stream>>>(
      static_cast<const Word*>(from), static_cast<Word*>(to), bytes / int64_t{sizeof(Word)});
  return cudaGetLastError();
}

template <typename Word>
cudaError_t launch_loads(const void* from, void* to, int64_t bytes, const Shape& shape, int sms,
                         cudaStream_t stream) {
  switch (shape.loads) {
    case 1:
      return launch<Word, 1>(from, to, bytes, shape.warps, sms, stream);
    case 2:
      return launch<Word, 2>(from, to, bytes, shape.warps, sms, stream);
    case 4:
      return launch<Word, 4>(from, to, bytes, shape.warps, sms, stream);
    default:
      return launch<Word, 8>(from, to, bytes, shape.warps, sms, stream);
  }
}

// Copies the last bytes, which are less than an access.
__global__ void copy_bytes(const char* from, char* to) { to[threadIdx.x] = from[threadIdx.x]; }

}  // namespace

cudaError_t copy(const void* from, void* to, int64_t bytes, const Shape& shape, int sms,
                 cudaStream_t stream) {
  if (!is_shape(shape)) return cudaErrorInvalidValue;
  const int64_t rest = bytes % shape.access_bytes;
  if (rest > 0) {
    const auto* last = static_cast<const char*>(from) + bytes - rest;
    copy_bytes<<<1, static_cast<unsigned>(rest), 0, stream>>>(
        last, static_cast<char*>(to) + bytes - rest);
  }
  if (shape.access_bytes == 4) {
    return launch_loads<uint32_t>(from, to, bytes, shape, sms, stream);
  }
  if (shape.access_bytes == 8) {
    return launch_loads<uint2>(from, to, bytes, shape, sms, stream);
  }
  return launch_loads<uint4>(from, to, bytes, shape, sms, stream);
}

}  // namespace gpuopt::in_flight
