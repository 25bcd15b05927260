// Sorts and selects keys by CUB, which comes with the CUDA toolkit.
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_select.cuh>

#include "triangle_count/triangle_count.h"

namespace gpuopt::triangle_count {
namespace {

// Calls `algorithm(memory, bytes)` to ask for its workspace, then to run.
template <typename Algorithm>
cudaError_t run(Algorithm algorithm, Workspace& workspace) {
  size_t bytes = 0;
  const cudaError_t error = algorithm(nullptr, bytes);
  return error == cudaSuccess ? algorithm(workspace.allocate(bytes), bytes) : error;
}

}  // namespace

cudaError_t sort_keys(uint64_t* (&keys)[2], int64_t count, int bits, Workspace& workspace,
                      cudaStream_t stream) {
  cub::DoubleBuffer<uint64_t> buffers(keys[0], keys[1]);
  const cudaError_t error = run(
      [&](void* memory, size_t& bytes) {
        return cub::DeviceRadixSort::SortKeys(memory, bytes, buffers, count, 0, bits, stream);
      },
      workspace);
  keys[0] = buffers.Current();
  keys[1] = buffers.Alternate();
  return error;
}

cudaError_t unique_keys(const uint64_t* keys, uint64_t* copies, int64_t* copied, int64_t count,
                        Workspace& workspace, cudaStream_t stream) {
  return run(
      [&](void* memory, size_t& bytes) {
        return cub::DeviceSelect::Unique(memory, bytes, keys, copies, copied, count, stream);
      },
      workspace);
}

}  // namespace gpuopt::triangle_count
