// Reductions of entries whose rows are narrow.
#pragma once

#include <cassert>

#include "common/warp.cuh"
#include "rows/device/rows_access.cuh"
#include "rows/device/rows_result.cuh"
#include "rows/device/rows_states.cuh"
#include "rows/device/rows_tile.cuh"

namespace gpuopt::rows {

template <typename T, typename State, bool kWeighted>
__global__ __launch_bounds__(kThreads, kTileBlocks) void reduce_tiles(const ReduceArgs args,
                                                                      void* starts, State* parts) {
  using C = compute_t<T>;
  __shared__ uint4 shared[kTileBytes / kAccessBytes];
  const ReduceProblem& problem = args.problem;
  const auto width = static_cast<uint32_t>(problem.features);
  grid_dependency_wait();
  const Window window = tile_window(args.walk);
  if (starts != nullptr && threadIdx.x == 0) {
    store_number(starts, problem.matrix.is_long, blockIdx.x, window.row);
  }

  // Load.
  TileMemory memory(shared);
  const int64_t begin = window.begin * width;
  const auto elements = static_cast<int32_t>(window.count * width);
  const T* const staged = reinterpret_cast<const T*>(shared);
  const T* x;
  if (problem.matrix.index == nullptr) {
    x = memory.copy(static_cast<const T*>(problem.dense.data) + begin, elements);
  } else {
    const auto most_column = static_cast<uint32_t>(problem.matrix.columns - 1);
    x = memory.gather<T>(window.count, static_cast<int32_t>(width), [&](int32_t entry) {
      const uint32_t column = *low_word(problem.matrix, problem.matrix.index, window.begin + entry);
      assert(column <= most_column && "index out of bounds");
      return static_cast<const T*>(problem.dense.data) +
             min(column, most_column) * problem.dense.row;
    });
  }
  const auto x_begin = static_cast<int32_t>(x - staged);
  [[maybe_unused]] int32_t y_apart = 0;
  if constexpr (kWeighted) {
    const T* const values = static_cast<const T*>(problem.value);
    const T* const y =
        problem.matrix.entry == nullptr
            ? memory.copy(values + begin, elements)
            : memory.gather<T>(window.count, static_cast<int32_t>(width), [&](int32_t entry) {
                return values + place_of(problem.matrix, window.begin + entry) * width;
              });
    y_apart = static_cast<int32_t>(y - x);
  }
  const TileRows rows(problem.matrix, window, memory);
  wait_for_copies();
  __syncthreads();

  // Reduce.
  const uint32_t feature = threadIdx.x % kWarp % width;
  rows.for_each(width, args.walk.team, [&](const TileRows::Share& share) {
    // Calls add() with the values of this thread. A loop that the compiler unrolled would divide by
    // the step, to count its iterations.
    constexpr int U = 4;
    const auto step = static_cast<int32_t>(share.step), stride = step * static_cast<int32_t>(width);
    const auto for_values = [&](auto&& add) {
      const int32_t end = x_begin + share.end * static_cast<int32_t>(width);
      int32_t at =
          x_begin + share.first * static_cast<int32_t>(width) + static_cast<int32_t>(feature);
      int64_t entry = window.begin + share.first;
#pragma unroll 1
      for (; at < end; at += U * stride, entry += U * step) {
        C values[U];
        bool valid[U];
#pragma unroll
        for (int u = 0; u < U; ++u) {
          const int32_t value_at = at + u * stride;
          valid[u] = value_at < end;
          if (valid[u]) values[u] = to_compute(staged[value_at]);
          if constexpr (kWeighted) {
            if (valid[u]) values[u] *= to_compute(staged[value_at + y_apart]);
          }
        }
#pragma unroll
        for (int u = 0; u < U; ++u) {
          if (valid[u]) add(values[u], entry + u * step);
        }
      }
    };
    State state;
    if constexpr (requires { state.most; }) {  // the maximum first: one exponential for each value
      for_values([&](C value, int64_t) { state.most = max(state.most, value); });
      for_values([&](C value, int64_t) {
        state.sum += value == state.most ? C(1) : exp(value - state.most);
      });
    } else {
      for_values([&](C value, int64_t entry) { state.add(value, entry); });
    }
    if (share.step > 1) {
      for (uint32_t apart = kWarp / 2; apart > 0; apart /= 2) {
        if (apart >= share.step) continue;
        const State other = shuffle_up(state, apart * width);
        if (share.index >= apart) state.merge(other);
      }
    }

    // Store. The last thread of a row has the sum of all.
    if (share.row < 0 || share.index + 1 < share.step) return;
    if (share.row == 0 || share.is_open) {
      const bool begins = share.row > 0;
      // All rows of a matrix end in the only block, if there is one block.
      if (parts != nullptr && (begins || share.entries > 0)) {
        parts[(2 * int64_t{blockIdx.x} + begins) * width + feature] = state;
      }
      return;
    }
    const State states[1] = {state};
    write_row<T>(problem, 0, window.row + share.row - 1, share.entries,
                 Features<T, Access::kSingle>(1, 0, feature, problem.features), states);
  });
}

}  // namespace gpuopt::rows
