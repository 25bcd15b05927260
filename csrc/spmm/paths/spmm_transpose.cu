// The kernels of spmm_transpose.h. The sort is the one of index_sort.
#include <cassert>

#include "common/launch.cuh"
#include "common/warp.cuh"
#include "index_sort/index_sort.cuh"
#include "rows/device/rows_walk.cuh"
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

// ---------------------------------------------------------------- a new transpose

// The row that an entry is in: the last one that begins in front of the entry or there.
__device__ __forceinline__ uint32_t row_of(const Matrix& matrix, int64_t entry) {
  int64_t row = 0, end = matrix.rows;
  while (end - row > 1) {
    const int64_t middle = row + (end - row) / 2;
    const bool begins_before = number_at(matrix.ptr, matrix.is_long, middle) <= entry;
    row = begins_before ? middle : row;
    end = begins_before ? end : middle;
  }
  return static_cast<uint32_t>(row);
}

__global__ __launch_bounds__(kTransposeThreads) void find_rows_of_entries(
    const TransposeProblem problem, uint32_t* rows) {
  grid_dependency_wait();
  launch_dependents();
  const int64_t entry = int64_t{blockIdx.x} * kTransposeThreads + threadIdx.x;
  if (entry < problem.matrix.entries) rows[entry] = row_of(problem.matrix, entry);
}

// Takes the sorted entries apart.
__global__ __launch_bounds__(kTransposeThreads) void write_transpose(const TransposeArgs args,
                                                                     const uint64_t* sorted,
                                                                     const uint32_t* rows) {
  grid_dependency_wait();
  launch_dependents();
  const TransposeProblem& problem = args.problem;
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
               index_sort::lower_bound(sorted, static_cast<uint32_t>(matrix.entries),
                                       static_cast<uint64_t>(column), args.position_bits));
}

// ---------------------------------------------------------------- a kept one

// Sums numbers up, in place. All threads of the block take part.
template <typename I>
__device__ void scan_in_place(I* numbers, int64_t count) {
  constexpr int kWarps = kAgainThreads / kWarp;
  __shared__ int64_t of_warps[kWarps];
  int64_t before = 0;
  for (int64_t first = 0; first < count; first += kAgainThreads) {
    const int64_t at = first + threadIdx.x;
    int64_t sum = at < count ? static_cast<int64_t>(numbers[at]) : 0;
#pragma unroll
    for (int apart = 1; apart < kWarp; apart *= 2) {
      const int64_t other = shuffle_up(sum, apart);
      if (threadIdx.x % kWarp >= apart) sum += other;
    }
    if (threadIdx.x % kWarp == kWarp - 1) of_warps[threadIdx.x / kWarp] = sum;
    __syncthreads();
    int64_t total = 0;
    for (int warp = 0; warp < kWarps; ++warp) {
      if (warp == static_cast<int>(threadIdx.x / kWarp)) sum += before + total;
      total += of_warps[warp];
    }
    if (at < count) numbers[at] = static_cast<I>(sum);
    before += total;
    __syncthreads();
  }
}

// Sorts the keys of the block's threads (Batcher, "Sorting networks and their applications", 1968).
__device__ void sort_keys(uint64_t (&keys)[kAgainThreads]) {
  for (unsigned size = 2; size <= kAgainThreads; size *= 2) {
    for (unsigned apart = size / 2; apart > 0; apart /= 2) {
      __syncthreads();
      const unsigned other = threadIdx.x ^ apart;
      if (other > threadIdx.x) {
        const bool ascends = (threadIdx.x & size) == 0;
        const uint64_t one = keys[threadIdx.x], two = keys[other];
        if ((one > two) == ascends) {
          keys[threadIdx.x] = two;
          keys[other] = one;
        }
      }
    }
  }
  __syncthreads();
}

// Makes a transpose again if the matrix has changed: a stable counting sort by one block. While
// entries are moved, ptr[c + 1] is where the next entry of column c goes.
template <typename I>
__global__ __launch_bounds__(kAgainThreads) void make_again(const TransposeProblem problem,
                                                            const Fingerprint* state,
                                                            int64_t* changes) {
  constexpr int kBits = 10;  // of a thread's number
  static_assert(kAgainThreads == 1 << kBits);
  __shared__ uint64_t keys[kAgainThreads];
  grid_dependency_wait();
  launch_dependents();
  if (state->is_same != 0) return;
  if (threadIdx.x == 0 && changes != nullptr) ++*changes;
  const Matrix& matrix = problem.matrix;
  const I* const columns = static_cast<const I*>(matrix.index);
  I* const ptr = static_cast<I*>(problem.ptr);
  const auto is_column = [&](int64_t column) {
    return static_cast<uint64_t>(column) < static_cast<uint64_t>(matrix.columns);
  };

  // Count.
  for (int64_t at = threadIdx.x; at <= matrix.columns; at += kAgainThreads) ptr[at] = 0;
  __syncthreads();
  for (int64_t entry = threadIdx.x; entry < matrix.entries; entry += kAgainThreads) {
    const int64_t column = columns[entry];
    assert(is_column(column) && "index out of bounds");
    using Word = std::conditional_t<sizeof(I) == 8, unsigned long long, unsigned>;
    if (is_column(column) && column + 2 <= matrix.columns) {
      atomicAdd(reinterpret_cast<Word*>(ptr + column + 2), Word{1});
    }
  }
  __syncthreads();
  scan_in_place(ptr, matrix.columns + 1);

  // Move, some neighbouring entries at a time.
  for (int64_t first = 0; first < matrix.entries; first += kAgainThreads) {
    const int64_t thread_entry = first + threadIdx.x;
    const int64_t thread_column =
        thread_entry < matrix.entries ? int64_t{columns[thread_entry]} : -1;
    keys[threadIdx.x] = is_column(thread_column)
                            ? static_cast<uint64_t>(thread_column) << kBits | threadIdx.x
                            : ~uint64_t{0};
    sort_keys(keys);
    const uint64_t key = keys[threadIdx.x], column = key >> kBits;
    const bool is_valid = key != ~uint64_t{0};
    const uint32_t begin = index_sort::lower_bound(keys, kAgainThreads, column, kBits);
    const int64_t to = is_valid ? ptr[column + 1] + (threadIdx.x - begin) : 0;
    __syncthreads();
    if (is_valid) {
      const int64_t entry = first + static_cast<int64_t>(key % kAgainThreads);
      static_cast<I*>(problem.entry)[to] = static_cast<I>(entry);
      static_cast<I*>(problem.index)[to] = static_cast<I>(row_of(matrix, entry));
      const bool is_last =
          threadIdx.x + 1 == kAgainThreads || keys[threadIdx.x + 1] >> kBits != column;
      if (is_last) ptr[column + 1] = static_cast<I>(to + 1);
    }
    __syncthreads();
  }
}

}  // namespace

cudaError_t launch(const FingerprintPlan& plan, cudaStream_t stream) {
  const auto kernel =
      plan.numbers.is_long ? compare_fingerprint<int64_t> : compare_fingerprint<int32_t>;
  return launch_kernel(kernel, plan.shape, stream, plan.numbers, plan.state, plan.must_match);
}

cudaError_t launch(const TransposePlan& plan, Workspace& workspace, cudaStream_t stream) {
  const TransposeProblem& problem = plan.args.problem;
  auto* rows = static_cast<uint32_t*>(
      workspace.allocate(static_cast<size_t>(problem.matrix.entries) * sizeof(uint32_t)));
  if (rows == nullptr) return cudaErrorMemoryAllocation;
  cudaError_t error = launch_kernel(find_rows_of_entries, plan.rows, stream, problem, rows);
  if (error != cudaSuccess) return error;
  const uint64_t* sorted = nullptr;
  error = sort_index(plan.sort, nullptr, workspace, stream, &sorted);
  if (error != cudaSuccess) return error;
  return launch_kernel(write_transpose, plan.finish, stream, plan.args, sorted,
                       static_cast<const uint32_t*>(rows));
}

cudaError_t launch(const KeptPlan& plan, cudaStream_t stream) {
  const cudaError_t error = launch(plan.compare, stream);
  if (error != cudaSuccess) return error;
  const auto kernel = plan.problem.matrix.is_long ? make_again<int64_t> : make_again<int32_t>;
  return launch_kernel(kernel, plan.again, stream, plan.problem,
                       static_cast<const Fingerprint*>(plan.compare.state), plan.changes);
}

}  // namespace gpuopt::spmm
