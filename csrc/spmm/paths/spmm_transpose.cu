// The kernels of spmm_transpose.h. The sort is the one of index_add.
#include <cassert>

#include "common/launch.cuh"
#include "common/warp.cuh"
#include "index_add/device/index_add_sort.cuh"
#include "spmm/device/spmm_walk.cuh"
#include "spmm/spmm_transpose.h"

namespace gpuopt::spmm {
namespace {

// The thread's share of the fingerprint of a vector.
template <typename I>
__device__ __forceinline__ uint64_t share_of(const void* numbers, int64_t count, int64_t position) {
  const int64_t step = int64_t{gridDim.x} * kTransposeThreads;
  uint64_t sum = 0;
  for (int64_t at = int64_t{blockIdx.x} * kTransposeThreads + threadIdx.x; at < count;
       at += kFingerprintItems * step) {
    I loaded[kFingerprintItems];
#pragma unroll
    for (int i = 0; i < kFingerprintItems; ++i) {
      if (at + i * step < count) loaded[i] = static_cast<const I*>(numbers)[at + i * step];
    }
#pragma unroll
    for (int i = 0; i < kFingerprintItems; ++i) {
      if (at + i * step < count) sum += mixed(loaded[i], position + at + i * step);
    }
  }
  return sum;
}

// The last block compares.
template <typename I>
__global__ __launch_bounds__(kTransposeThreads) void compare_fingerprint(const Numbers numbers,
                                                                         Fingerprint* state,
                                                                         bool must_match) {
  constexpr int kWarps = kTransposeThreads / kWarp;
  __shared__ uint64_t sums[kWarps];
  grid_dependency_wait();
  launch_dependents();
  uint64_t sum = share_of<I>(numbers.first, numbers.first_count, 0) +
                 share_of<I>(numbers.second, numbers.second_count, numbers.first_count);
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
  if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  unsigned long long of_block = 0;
  for (const uint64_t of_warp : sums) of_block += of_warp;
  atomicAdd(&state->sum, of_block);
  __threadfence();
  if (atomicAdd(&state->tickets, 1u) + 1 < gridDim.x) return;
  const unsigned long long value = atomicExch(&state->sum, 0ull);
  const bool is_same = state->is_known != 0 && state->value == value;
  assert((!must_match || is_same || state->is_known == 0) &&
         "an index was written to in a way that PyTorch does not count: pass a copy of it");
  state->tickets = 0;
  state->value = value;
  state->is_known = 1;
  state->is_same = is_same;
}

__device__ __forceinline__ bool is_skipped(const TransposeProblem& problem) {
  return problem.state != nullptr && __ldcg(&problem.state->is_same) != 0;
}

// The row of each entry.
__global__ __launch_bounds__(kTransposeThreads) void find_rows_of_entries(
    const TransposeProblem problem, uint32_t* rows) {
  grid_dependency_wait();
  launch_dependents();
  if (is_skipped(problem)) return;
  const Matrix& matrix = problem.matrix;
  const int64_t entry = int64_t{blockIdx.x} * kTransposeThreads + threadIdx.x;
  if (entry >= matrix.entries) return;
  int64_t row = 0, end = matrix.rows;
  while (end - row > 1) {
    const int64_t middle = row + (end - row) / 2;
    const bool begins_before = number_at(matrix.ptr, matrix.is_long, middle) <= entry;
    row = begins_before ? middle : row;
    end = begins_before ? end : middle;
  }
  rows[entry] = static_cast<uint32_t>(row);
}

// Takes the sorted entries apart.
__global__ __launch_bounds__(kTransposeThreads) void write_transpose(const TransposeArgs args,
                                                                     const uint64_t* sorted,
                                                                     const uint32_t* rows) {
  grid_dependency_wait();
  launch_dependents();
  const TransposeProblem& problem = args.problem;
  if (is_skipped(problem)) return;
  const Matrix& matrix = problem.matrix;
  if (blockIdx.x < args.entry_blocks) {
    const int64_t at = int64_t{blockIdx.x} * kTransposeThreads + threadIdx.x;
    if (at >= matrix.entries) return;
    const uint64_t entry = sorted[at] & ((uint64_t{1} << args.position_bits) - 1);
    store_number(problem.entry, matrix.is_long, at, static_cast<int64_t>(entry));
    store_number(problem.index, matrix.is_long, at, rows[entry]);
    return;
  }
  const int64_t block = blockIdx.x - args.entry_blocks;
  const int64_t column = block * kTransposeThreads + threadIdx.x;
  if (column > matrix.columns) return;
  store_number(problem.ptr, matrix.is_long, column,
               index_add::lower_bound(sorted, static_cast<uint32_t>(matrix.entries),
                                      static_cast<uint64_t>(column), args.position_bits));
}

}  // namespace

cudaError_t launch(const FingerprintPlan& plan, cudaStream_t stream) {
  const auto kernel =
      plan.numbers.is_long ? compare_fingerprint<int64_t> : compare_fingerprint<int32_t>;
  return launch_kernel(kernel, plan.shape, stream, plan.numbers, plan.state, plan.must_match);
}

cudaError_t launch(const TransposePlan& plan, Workspace& workspace, cudaStream_t stream) {
  const TransposeProblem& problem = plan.args.problem;
  cudaError_t error = cudaSuccess;
  if (problem.state != nullptr) error = launch(plan.compare, stream);
  if (error != cudaSuccess) return error;
  auto* rows = static_cast<uint32_t*>(
      workspace.allocate(static_cast<size_t>(problem.matrix.entries) * sizeof(uint32_t)));
  if (rows == nullptr) return cudaErrorMemoryAllocation;
  error = launch_kernel(find_rows_of_entries, plan.rows, stream, problem, rows);
  if (error != cudaSuccess) return error;
  const uint64_t* sorted = nullptr;
  error = sort_index(plan.sort, nullptr, workspace, stream, &sorted);
  if (error != cudaSuccess) return error;
  return launch_kernel(write_transpose, plan.finish, stream, plan.args, sorted,
                       static_cast<const uint32_t*>(rows));
}

}  // namespace gpuopt::spmm
