// Maps of narrow rows: threads side by side along the results.
#pragma once

#include <cassert>

#include "rows/device/rows_states.cuh"
#include "rows/device/rows_tile.cuh"

namespace gpuopt::rows {

template <typename T, typename R, Map kMap>
__global__ __launch_bounds__(kThreads, kTileBlocks) void map_tiles(const MapArgs args) {
  constexpr int N = kVecSize<T>;
  __shared__ uint4 shared[kTileBytes / kAccessBytes];
  const MapProblem& problem = args.problem;
  const Matrix& matrix = problem.matrix;
  const auto width = static_cast<int32_t>(problem.features);
  grid_dependency_wait();
  const Window window = tile_window(args.walk);
  // The entries of the tile. Some may be of no row: before the first row or behind the last.
  const int64_t begin = blockIdx.x * args.walk.window - window.row;
  const auto count = static_cast<int32_t>(
      max(min(args.walk.window - window.rows, matrix.entries - begin), int64_t{0}));
  const int32_t elements = count * width;

  // Load what belongs to rows, from the row before the tile on, and to entries.
  TileMemory memory(shared);
  const int32_t before = window.row > 0 ? 1 : 0;
  const int64_t first_row = (window.row - before) * width;
  const int32_t of_rows = (before + window.rows) * width;
  const R* const row = memory.copy(static_cast<const R*>(problem.row.data) + first_row, of_rows);
  [[maybe_unused]] const int32_t* selected = nullptr;
  [[maybe_unused]] const int64_t* long_selected = nullptr;
  [[maybe_unused]] const T *x = nullptr, *y = nullptr;
  if constexpr (kMap == Map::kSelected) {
    if (matrix.is_long) {
      long_selected =
          memory.copy(static_cast<const int64_t*>(problem.selected) + first_row, of_rows);
    } else {
      selected = memory.copy(static_cast<const int32_t*>(problem.selected) + first_row, of_rows);
    }
  }
  if constexpr (kMap == Map::kSoftmax || kMap == Map::kSoftmaxGradient) {
    x = memory.copy(static_cast<const T*>(problem.x) + begin * width, elements);
  }
  if constexpr (kMap == Map::kSoftmaxGradient) {
    y = memory.copy(static_cast<const T*>(problem.y) + begin * width, elements);
  }

  // Find the row of each entry: its number in TileRows and 1, or 0.
  uint16_t* const owner = memory.take<uint16_t>(count);
  for (int32_t at = static_cast<int32_t>(threadIdx.x) * kVecSize<uint16_t>; at < count;
       at += kThreads * kVecSize<uint16_t>) {
    *reinterpret_cast<uint4*>(owner + at) = uint4{};
  }
  const TileRows rows(matrix, window, memory);
  __syncthreads();
  const auto lead = static_cast<int32_t>(window.begin - begin);
  rows.for_each(1, args.walk.team, [&](const TileRows::Share& share) {
#pragma unroll 1
    for (int32_t entry = share.first; entry < share.end;
         entry += static_cast<int32_t>(share.step)) {
      owner[lead + entry] = static_cast<uint16_t>(share.row + 1);
    }
  });
  wait_for_copies();
  __syncthreads();

  // Compute and store.
  [[maybe_unused]] const auto other_at = [&](int32_t entry) {
    uint32_t column = static_cast<uint32_t>(begin + entry);
    if (matrix.index != nullptr) {
      const auto most_column = static_cast<uint32_t>(matrix.columns - 1);
      column = *low_word(matrix, matrix.index, begin + entry);
      assert(column <= most_column && "index out of bounds");
      column = min(column, most_column);
    }
    return static_cast<const T*>(problem.x) + int64_t{column} * width;
  };
  T* const out = static_cast<T*>(problem.out) + begin * width;
  const auto shift =
      static_cast<int32_t>(reinterpret_cast<uintptr_t>(out) % kAccessBytes / sizeof(T));
  for (int32_t at = static_cast<int32_t>(threadIdx.x) * N - shift; at < elements;
       at += kThreads * N) {
    auto entry = static_cast<int32_t>(args.by_features.div(static_cast<uint32_t>(max(at, 0))));
    int32_t feature = max(at, 0) - entry * width;
    Vec<T, N> results = {};
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (at + i < 0 || at + i >= elements) continue;
      const int32_t number = owner[entry];
      if (number > 0) {
        const int32_t of_row = (number - 2 + before) * width + feature;
        const R result = row[of_row];
        if constexpr (kMap == Map::kCopy) {
          results.values[i] = result;
        } else if constexpr (kMap == Map::kSelected) {
          const int64_t chosen = matrix.is_long ? long_selected[of_row] : selected[of_row];
          if (chosen == begin + entry) results.values[i] = result;
        } else if constexpr (kMap == Map::kProduct) {
          results.values[i] =
              from_compute<T>(to_compute(result) * to_compute(other_at(entry)[feature]));
        } else if constexpr (kMap == Map::kSoftmax) {
          results.values[i] = softmax_of(x[at + i], result);
        } else {
          results.values[i] = softmax_gradient_of(x[at + i], y[at + i], result);
        }
      }
      if (++feature == width) {
        feature = 0;
        ++entry;
      }
    }
    if (at >= 0 && at + N <= elements) {
      store_whole(out + at, results);
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if (at + i >= 0 && at + i < elements) out[at + i] = results.values[i];
      }
    }
  }
}

}  // namespace gpuopt::rows
