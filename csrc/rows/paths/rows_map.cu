// What is computed of each entry and its row: copies of rows, softmax, and gradients.
#include "common/floats.cuh"
#include "common/launch.cuh"
#include "rows/device/rows_access.cuh"
#include "rows/device/rows_states.cuh"
#include "rows/device/rows_walk.cuh"
#include "rows/paths/rows_map_tiles.cuh"
#include "rows/rows.h"

namespace gpuopt::rows {
namespace {

// The thread keeps R of its row, one for each feature.
template <typename T, typename R, Map kMap, Access kAccess>
__global__ __launch_bounds__(kThreads, 4) void map_rows(const MapArgs args) {
  using F = Features<T, kAccess>;
  constexpr int N = F::kCount, U = kAccess == Access::kSpread ? 2 : 4;
  const MapProblem& problem = args.problem;
  grid_dependency_wait();
  const Place place(args.walk);
  const Window window(args.walk, place.window, args.walk.lanes);
  const F features(args.walk.lanes, place.tile, place.lane, problem.features);
  R row[N];
  int64_t selected[N];
  const auto load_row = [&](int64_t number) {
    const R* const from = static_cast<const R*>(problem.row.data) + number * problem.row.row;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if (features.has(j)) row[j] = from[features.at(j)];
    }
    if constexpr (kMap == Map::kSelected) {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        if (features.has(j)) {
          selected[j] = number_at(problem.selected, problem.matrix.is_long,
                                  number * problem.features + features.at(j));
        }
      }
    }
  };
  // Entries of no row are before the first row or behind the last.
  const auto clear = [&](int64_t from, int64_t end) {
    const T zeros[N] = {};
    for (int64_t entry = from; entry < min(end, problem.matrix.entries); ++entry) {
      features.store(static_cast<T*>(problem.out) + entry * problem.features, zeros);
    }
  };
  const int64_t first = place.window * args.walk.window - window.row;
  if (place.window < args.walk.windows) {
    clear(first, window.begin);
    clear(max(first, window.begin + window.count), first + args.walk.window - window.rows);
  }
  Cursor rows(problem.matrix, window);
  while (rows.end() == 0) rows.advance();
  if (window.count > 0) load_row(window.row + rows.row());
  for (int32_t from = 0; from < window.count; from += U) {
    T x[U][N], y[U][N];
    if constexpr (kMap == Map::kSoftmax || kMap == Map::kSoftmaxGradient) {
#pragma unroll
      for (int u = 0; u < U; ++u) {
        const bool valid = from + u < window.count;
        const int64_t at = (window.begin + from + u) * problem.features;
        features.load(static_cast<const T*>(problem.x) + at, valid, x[u]);
        if constexpr (kMap == Map::kSoftmaxGradient) {
          features.load(static_cast<const T*>(problem.y) + at, valid, y[u]);
        }
      }
    }
#pragma unroll
    for (int u = 0; u < U; ++u) {
      if (from + u >= window.count) break;
      if (from + u == rows.end()) {
        while (from + u == rows.end()) rows.advance();
        load_row(window.row + rows.row());
      }
      const int64_t entry = window.begin + from + u;
      T out[N];
#pragma unroll
      for (int j = 0; j < N; ++j) {
        if constexpr (kMap == Map::kCopy) {
          out[j] = row[j];
        } else if constexpr (kMap == Map::kSelected) {
          out[j] = selected[j] == entry ? row[j] : T{};
        } else if constexpr (kMap == Map::kSoftmax) {
          out[j] = softmax_of(x[u][j], row[j]);
        } else {
          out[j] = softmax_gradient_of(x[u][j], y[u][j], row[j]);
        }
      }
      features.store(static_cast<T*>(problem.out) + entry * problem.features, out);
    }
  }
}

template <typename T, typename R, Map kMap>
cudaError_t run(const MapPlan& plan, cudaStream_t stream) {
  const auto kernel = plan.access == Access::kTile     ? map_tiles<T, R, kMap>
                      : plan.access == Access::kSpread ? map_rows<T, R, kMap, Access::kSpread>
                                                       : map_rows<T, R, kMap, Access::kSingle>;
  return launch_kernel(kernel, plan.shape, stream, plan.args);
}

template <typename T>
cudaError_t run_moves(const MapPlan& plan, cudaStream_t stream) {
  return plan.args.problem.map == Map::kCopy ? run<T, T, Map::kCopy>(plan, stream)
                                             : run<T, T, Map::kSelected>(plan, stream);
}

// Values that are only moved have the size of this type.
cudaError_t move(const MapPlan& plan, cudaStream_t stream) {
  if (plan.access == Access::kVector) {
    return launch_kernel(map_rows<uint64_t, uint64_t, Map::kCopy, Access::kVector>, plan.shape,
                         stream, plan.args);
  }
  switch (size_of(plan.args.problem.dtype)) {
    case 1:
      return run_moves<uint8_t>(plan, stream);
    case 2:
      return run_moves<uint16_t>(plan, stream);
    case 4:
      return run_moves<uint32_t>(plan, stream);
    default:
      return run_moves<uint64_t>(plan, stream);
  }
}

}  // namespace

cudaError_t launch(MapPlan plan, Workspace& workspace, cudaStream_t stream) {
  MapProblem& problem = plan.args.problem;
  if (problem.map == Map::kCopy || problem.map == Map::kSelected) return move(plan, stream);
  return with_float(problem.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = compute_t<T>;
    if (problem.map == Map::kProduct) {
      return launch_kernel(map_tiles<T, T, Map::kProduct>, plan.shape, stream, plan.args);
    }
    const bool is_gradient = problem.map == Map::kSoftmaxGradient;
    const size_t bytes = is_gradient ? sizeof(C) : sizeof(LogSumState<C>);
    problem.row.row = problem.features;
    problem.row.data =
        workspace.allocate(static_cast<size_t>(problem.matrix.rows * problem.features) * bytes);
    if (problem.row.data == nullptr) return cudaErrorMemoryAllocation;
    ReducePlan statistics = *plan.statistics;
    statistics.args.problem.out.data = problem.row.data;
    const cudaError_t error = launch(statistics, workspace, stream);
    if (error != cudaSuccess) return error;
    return is_gradient ? run<T, C, Map::kSoftmaxGradient>(plan, stream)
                       : run<T, LogSumState<C>, Map::kSoftmax>(plan, stream);
  });
}

}  // namespace gpuopt::rows
