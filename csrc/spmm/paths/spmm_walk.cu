// Where the windows of a matrix begin.
#include "common/launch.cuh"
#include "spmm/device/spmm_walk.cuh"

namespace gpuopt::spmm {
namespace {

constexpr int kSearchThreads = 128;

__global__ __launch_bounds__(kSearchThreads) void search(const Walk walk, void* starts) {
  grid_dependency_wait();
  const int64_t window = int64_t{blockIdx.x} * kSearchThreads + threadIdx.x;
  if (window > walk.windows) return;
  // Rows before `low` begin before the window, rows from `high` on do not.
  int64_t low = 0, high = walk.matrix.rows;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (start_of(walk.matrix, middle) + middle < window * walk.window) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (walk.matrix.is_long) {
    static_cast<int64_t*>(starts)[window] = low;
  } else {
    static_cast<int32_t*>(starts)[window] = static_cast<int32_t>(low);
  }
}

}  // namespace

cudaError_t find_starts(const Walk& walk, Workspace& workspace, cudaStream_t stream,
                        const void*& starts) {
  starts = nullptr;
  if (walk.by_row) return cudaSuccess;
  const size_t bytes = walk.matrix.is_long ? sizeof(int64_t) : sizeof(int32_t);
  void* const found = workspace.allocate(static_cast<size_t>(walk.windows + 1) * bytes);
  if (found == nullptr) return cudaErrorMemoryAllocation;
  starts = found;
  LaunchShape shape;
  shape.threads = kSearchThreads;
  shape.use_pdl = true;
  shape.blocks = static_cast<unsigned>(ceil_div<int64_t>(walk.windows + 1, kSearchThreads));
  return launch_kernel(search, shape, stream, walk, found);
}

}  // namespace gpuopt::spmm
