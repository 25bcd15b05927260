// Reductions of few entries in one launch. A row has a team of threads of one warp, and
// neighbouring threads stand side by side along its features. All threads of the block share a long
// row:
//
//   lanes 4, team 2     | row 0           | row 1           | row 2          | row 3          |
//   thread                0-3 4-7           8-11 12-15        16 ...           24 ...
//   entry of the row      0   1             0    1            0    1           0    1
//
// Nothing is left for a second kernel. The parts of a row are merged in a fixed tree.
#pragma once

#include <cassert>

#include "common/warp.cuh"
#include "rows/device/rows_access.cuh"
#include "rows/device/rows_result.cuh"
#include "rows/device/rows_states.cuh"
#include "rows/device/rows_walk.cuh"

namespace gpuopt::rows {

template <typename T, typename State, Access kAccess, bool kWeighted>
__global__ __launch_bounds__(kFewThreads) void reduce_few(const ReduceArgs args) {
  using C = compute_t<T>;
  using F = Features<T, kAccess>;
  constexpr int N = F::kCount, U = 4, kWarps = kFewThreads / kWarp;
  constexpr int kWeights = kAccess == Access::kVector ? 1 : N;
  const ReduceProblem& problem = args.problem;
  const Matrix& matrix = problem.matrix;
  const Walk& walk = args.walk;
  __shared__ State shared[kFewThreads];  // of long rows: one of each warp and lane
  const uint32_t outer = blockIdx.x / walk.blocks, batch = outer / walk.tiles;
  const uint32_t lane = threadIdx.x % walk.lanes, of_row = walk.lanes * walk.team;
  const F features(walk.lanes, outer % walk.tiles, lane, problem.features);
  const T* const dense = static_cast<const T*>(problem.dense.data) + batch * problem.dense.batch;
  [[maybe_unused]] uint32_t head[kWeights] = {};
  if constexpr (kWeighted) {
    const auto of_head = static_cast<uint32_t>(problem.features / problem.heads);
#pragma unroll
    for (int j = 0; j < kWeights; ++j) head[j] = features.has(j) ? features.at(j) / of_head : 0;
  }
  const auto most_column = static_cast<uint32_t>(matrix.columns - 1);
  grid_dependency_wait();
  launch_dependents();

  // Reduces the entries first, first + step, ... below `end`.
  const auto reduce = [&](int64_t first, int64_t end, uint32_t step, State(&states)[N]) {
    uint32_t columns[U] = {};
    const auto fetch = [&](int64_t from) {
      if (matrix.index == nullptr) return;
#pragma unroll
      for (int u = 0; u < U; ++u) {
        const int64_t at = from + u * step;
        columns[u] = load_word<uint32_t>(low_word(matrix, matrix.index, at), at < end);
      }
    };
    fetch(first);
#pragma unroll 1
    for (int64_t entry = first; entry < end; entry += U * step) {
      T values[U][N];
      [[maybe_unused]] T weights[U][kWeights];
#pragma unroll
      for (int u = 0; u < U; ++u) {
        const int64_t at = entry + u * step;
        assert((matrix.index == nullptr || at >= end || columns[u] <= most_column) &&
               "index out of bounds");
        const int64_t row = matrix.index == nullptr ? at : min(columns[u], most_column);
        features.load(dense + row * problem.dense.row, at < end, values[u]);
        if constexpr (kWeighted) {
          const T* const of_entry = static_cast<const T*>(problem.value) +
                                    (at < end ? place_of(matrix, at) : 0) * problem.heads;
#pragma unroll
          for (int j = 0; j < kWeights; ++j) weights[u][j] = load_if(of_entry + head[j], at < end);
        }
      }
      fetch(entry + U * step);
#pragma unroll
      for (int u = 0; u < U; ++u) {
        if (entry + u * step >= end) break;
#pragma unroll
        for (int j = 0; j < N; ++j) {
          C x = to_compute(values[u][j]);
          if constexpr (kWeighted) x *= to_compute(weights[u][kWeights == 1 ? 0 : j]);
          states[j].add(x, entry + u * step);
        }
      }
    }
  };
  // Merges the states of a feature in neighbouring threads of a warp, `lanes` apart.
  const auto merge = [&](uint32_t threads, State(&states)[N]) {
    for (uint32_t apart = threads / 2; apart >= walk.lanes; apart /= 2) {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        states[j].merge(shuffle_xor(states[j], static_cast<int>(apart)));
      }
    }
  };

  // Row r is in block r % blocks.
  const uint32_t team = threadIdx.x / of_row, number = threadIdx.x % of_row / walk.lanes;
  const int64_t first_row = blockIdx.x % walk.blocks;
  const int64_t row = first_row + int64_t{team} * walk.blocks;
  const bool has_row = team < walk.window && row < matrix.rows;
  const int64_t begin = has_row ? start_of(matrix, row) : 0;
  const int64_t end = has_row ? start_of(matrix, row + 1) : 0;
  const bool is_long = end - begin > int64_t{kLongFew} * walk.team;
  {
    State states[N];
    if (!is_long) reduce(begin + number, end, walk.team, states);
    merge(of_row, states);
    if (has_row && !is_long && number == 0) {
      write_row<T>(problem, batch, row, end - begin, features, states);
    }
  }
  if (!__syncthreads_or(is_long)) return;
  for (int64_t next = first_row; next < matrix.rows; next += walk.blocks) {
    const int64_t from = start_of(matrix, next), to = start_of(matrix, next + 1);
    if (to - from <= int64_t{kLongFew} * walk.team) continue;
    State states[N];
    reduce(from + threadIdx.x / walk.lanes, to, kFewThreads / walk.lanes, states);
    merge(kWarp, states);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if (threadIdx.x % kWarp < walk.lanes) {
        shared[threadIdx.x / kWarp * walk.lanes + lane] = states[j];
      }
      __syncthreads();
      for (int warp = 1; warp < kWarps && threadIdx.x < walk.lanes; ++warp) {
        states[j].merge(shared[warp * walk.lanes + lane]);
      }
      __syncthreads();
    }
    if (threadIdx.x < walk.lanes) write_row<T>(problem, batch, next, to - from, features, states);
  }
}

}  // namespace gpuopt::rows
