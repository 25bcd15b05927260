// C entry points to the emulated kernels of triangle_count, for test_triangle_count.py, and
// sorts that replace CUB.
#include <algorithm>

#include "../poisoned_workspace.h"
#include "triangle_count/triangle_count.h"

namespace gpuopt::triangle_count {

// Sorts into the other array, as a radix sort with an odd number of passes.
cudaError_t sort_keys(uint64_t* (&keys)[2], int64_t count, int bits, Workspace& workspace,
                      cudaStream_t) {
  memset(workspace.allocate(64), 0, 64);
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  std::copy_n(keys[0], count, keys[1]);
  std::swap(keys[0], keys[1]);
  std::stable_sort(keys[0], keys[0] + count,
                   [mask](uint64_t one, uint64_t other) { return (one & mask) < (other & mask); });
  return cudaSuccess;
}

cudaError_t unique_keys(const uint64_t* keys, uint64_t* copies, int64_t* copied, int64_t count,
                        Workspace& workspace, cudaStream_t) {
  memset(workspace.allocate(64), 0, 64);
  *copied = std::unique_copy(keys, keys + count, copies) - copies;
  return cudaSuccess;
}

}  // namespace gpuopt::triangle_count

using namespace gpuopt;
using namespace gpuopt::triangle_count;

// Orients edges of int32 or int64. Returns 0, the error of a launch, or -1 for a write past the end
// of the workspace.
extern "C" int orient(const void* source, const void* target, int is_long, int64_t count,
                      int64_t vertices, int64_t* ptr, int32_t* from, int32_t* to, int32_t* order) {
  PoisonedWorkspace workspace(static_cast<char>(0xa5));
  const Edges edges = {source, target, is_long != 0, count, vertices};
  const Oriented graph = {ptr, from, to, order, vertices, count};
  const cudaError_t error = launch(plan(edges, graph), workspace, nullptr);
  return workspace.intact() ? error : -1;
}

// Adds to `count`.
extern "C" int count_blocks(const int32_t* ptr, const int32_t* target, int64_t rows,
                            const int32_t* ptr_of_u, const int32_t* target_of_u, int64_t rows_of_u,
                            const int32_t* ptr_of_v, const int32_t* target_of_v, int64_t rows_of_v,
                            uint64_t* count) {
  const auto plan = plan_blocks({ptr, target, rows}, {ptr_of_u, target_of_u, rows_of_u},
                                {ptr_of_v, target_of_v, rows_of_v}, count);
  return launch(plan, nullptr);
}

// Adds to `count`.
extern "C" int count_triangles(const int64_t* ptr, const int32_t* target, const int32_t* order,
                               int64_t vertices, int64_t capacity, int per_vertex,
                               uint64_t* count) {
  const Lists<int64_t> lists = {ptr, target, vertices};
  return launch(plan_whole(lists, capacity, per_vertex ? order : nullptr, count), nullptr);
}
