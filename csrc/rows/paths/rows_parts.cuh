// The kernel that adds the parts of long rows.
#pragma once

#include <type_traits>

#include "common/launch.cuh"
#include "common/workspace.h"
#include "rows/device/rows_access.cuh"
#include "rows/device/rows_result.cuh"
#include "rows/device/rows_walk.cuh"

namespace gpuopt::rows {

// Adds the parts of rows that do not end in the block where they begin. Each warp has a block of
// reduce_rows, and kSpread features of a thread. It adds the parts of the last row that begins
// there; if there are many, all warps do.
template <typename T, typename State, typename Args>
__global__ __launch_bounds__(kFinishThreads) void add_parts(const Args args, const void* starts,
                                                            const State* parts) {
  using F = Features<T, Access::kSpread>;
  constexpr int N = F::kCount;
  constexpr int32_t kMany = 32;
  // Parts whose loads are in flight together.
  constexpr int kAhead = sizeof(State) > 16 ? 1 : 16 / sizeof(State);
  grid_dependency_wait();
  const auto& problem = args.problem;
  const Walk& walk = args.walk;
  const Matrix& matrix = walk.matrix;
  const uint32_t outer = blockIdx.x / args.finish_blocks;
  const uint32_t tile = outer % args.finish_tiles, batch = outer / args.finish_tiles;
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const F features(kWarp, tile, lane, problem.features);
  const int64_t first_block = int64_t{blockIdx.x % args.finish_blocks} * kFinishBlocks;

  // Of each warp: the row, and its parts, or 0 if it ends where it begins.
  __shared__ int64_t rows[kFinishBlocks];
  __shared__ int32_t counts[kFinishBlocks];
  __shared__ State shared[kFinishThreads];
  const int64_t warp_block = first_block + warp;
  int64_t warp_row = -1;
  int32_t warp_count = 0;
  if (warp_block < walk.blocks) {
    warp_row = matrix.rows - 1;
    if (warp_block + 1 < walk.blocks)
      warp_row = number_at(starts, matrix.is_long, warp_block + 1) - 1;
    if (warp_row >= number_at(starts, matrix.is_long, warp_block)) {
      const int64_t last = start_of(matrix, warp_row + 1) + warp_row;  // position of its entries
      warp_count =
          static_cast<int32_t>(last / (walk.window * (kThreads / walk.lanes)) - warp_block);
      if (warp_count > 0) ++warp_count;
    }
  }
  if (lane == 0) {
    rows[warp] = warp_row;
    counts[warp] = warp_count;
  }

  // Adds every step-th part from number `from` on, for warp w.
  const auto add = [&](uint32_t w, int32_t from, int32_t step, int32_t count, State(&states)[N]) {
    const State* const of_block =
        parts + 2 * (batch * walk.blocks + first_block + w) * problem.features;
    for (int32_t first = from; first < count; first += kAhead * step) {
      State loaded[kAhead][N];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int32_t part = first + i * step;
        const State* const source = of_block + (2 * int64_t{part} + (part == 0)) * problem.features;
#pragma unroll
        for (int j = 0; j < N; ++j) {
          if (part < count && features.has(j)) loaded[i][j] = source[features.at(j)];
        }
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (first + i * step >= count) break;
#pragma unroll
        for (int j = 0; j < N; ++j) states[j].merge(loaded[i][j]);
      }
    }
  };
  const auto finish = [&](int64_t row, const State(&states)[N]) {
    const int64_t first = start_of(matrix, row);
    write_row<T>(problem, batch, row, start_of(matrix, row + 1) - first, features, states);
  };
  if (warp_count > 0 && warp_count <= kMany) {
    State states[N];
    add(warp, 0, 1, warp_count, states);
    finish(warp_row, states);
  }
  __syncthreads();
  for (uint32_t w = 0; w < kFinishBlocks; ++w) {
    if (counts[w] <= kMany) continue;
    State states[N];
    add(w, static_cast<int32_t>(warp), kFinishBlocks, counts[w], states);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      __syncthreads();
      shared[threadIdx.x] = states[j];
      __syncthreads();
      for (uint32_t other = 1; other < kFinishBlocks && warp == 0; ++other) {
        states[j].merge(shared[other * kWarp + lane]);
      }
    }
    if (warp == 0) finish(rows[w], states);
  }
}

// Starts a kernel, and adds the parts that it leaves as `sums` says. There are none if one block
// walks all rows.
template <typename T, typename State, typename Args, typename Plan>
cudaError_t launch_with_parts(void (*kernel)(Args, void*, State*), const Args& args,
                              const LaunchShape& shape, const Plan& sums, Workspace& workspace,
                              cudaStream_t stream) {
  void* starts = nullptr;  // the first row of each block
  State* parts = nullptr;
  if (sums.part_bytes > 0) {
    starts = workspace.allocate(args.walk.blocks * (args.walk.matrix.is_long ? 8 : 4));
    parts = static_cast<State*>(workspace.allocate(sums.part_bytes));
    if (starts == nullptr || parts == nullptr) return cudaErrorMemoryAllocation;
  }
  const cudaError_t error = launch_kernel(kernel, shape, stream, args, starts, parts);
  if (error != cudaSuccess || parts == nullptr) return error;
  return launch_kernel(add_parts<T, State, std::decay_t<decltype(sums.args)>>, sums.finish, stream,
                       sums.args, static_cast<const void*>(starts),
                       static_cast<const State*>(parts));
}

}  // namespace gpuopt::rows
