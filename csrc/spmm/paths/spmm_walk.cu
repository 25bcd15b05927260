// Where the windows of a matrix begin.
#include "common/launch.cuh"
#include "spmm/device/spmm_walk.cuh"

namespace gpuopt::spmm {
namespace {

constexpr int kSearchThreads = 128;

__global__ __launch_bounds__(kSearchThreads) void search(const Walk walk, void* starts) {
  const int64_t window = int64_t{blockIdx.x} * kSearchThreads + threadIdx.x;
  if (window > walk.windows) return;
  const int64_t row = min(row_at(walk.matrix, window * walk.window - 1, 1) + 1, walk.matrix.rows);
  if (walk.matrix.is_long) {
    static_cast<int64_t*>(starts)[window] = row;
  } else {
    static_cast<int32_t*>(starts)[window] = static_cast<int32_t>(row);
  }
}

}  // namespace

void* find_starts(const Walk& walk, Workspace& workspace, cudaStream_t stream) {
  const size_t bytes = walk.matrix.is_long ? sizeof(int64_t) : sizeof(int32_t);
  void* const starts = workspace.allocate(static_cast<size_t>(walk.windows + 1) * bytes);
  if (starts == nullptr) return nullptr;
  LaunchShape shape;
  shape.threads = kSearchThreads;
  shape.blocks = static_cast<unsigned>(ceil_div<int64_t>(walk.windows + 1, kSearchThreads));
  return launch_kernel(search, shape, stream, walk, starts) == cudaSuccess ? starts : nullptr;
}

}  // namespace gpuopt::spmm
