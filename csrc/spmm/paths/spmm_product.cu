// Products of the rows that entries join (SDDMM).
#include <cassert>

#include "common/floats.cuh"
#include "common/launch.cuh"
#include "common/warp.cuh"
#include "rows/device/rows_access.cuh"
#include "rows/device/rows_walk.cuh"
#include "spmm/spmm.h"

namespace gpuopt::spmm {
namespace {

constexpr int kProducts = 4;  // entries of a thread whose loads are in flight together

template <typename T, Access kAccess>
__global__ __launch_bounds__(kThreads, 5) void product_rows(const ProductArgs args) {
  using C = compute_t<T>;
  using F = Features<T, kAccess>;
  constexpr int N = F::kCount, U = kProducts;
  grid_dependency_wait();
  const ProductProblem& problem = args.problem;
  const Matrix& matrix = problem.matrix;
  const Place place(args.walk);
  const Window window(args.walk, place.window, args.walk.lanes);
  // A group computes the products of some heads, or reads the features of one head in `steps`.
  const uint32_t lanes = args.walk.lanes, width = lanes * N;
  const auto of_head = static_cast<uint32_t>(problem.features / problem.heads);
  const uint32_t first = place.tile * args.tile_features;
  const uint32_t steps = (args.tile_features + width - 1) / width;
  const T* const a = static_cast<const T*>(problem.a.data) + first;
  const T* const b = static_cast<const T*>(problem.b.data) + first;
  const auto features_at = [&](uint32_t step) {
    return F(lanes, step, place.lane,
             min(int64_t{args.tile_features}, problem.features - int64_t{first}));
  };
  Cursor rows(matrix, window);
  uint32_t last_column = 0;  // that any entry has
  const auto most_column = static_cast<uint32_t>(matrix.columns - 1);
  uint32_t next_columns[U] = {};
  const auto fetch = [&](int32_t from) {
    if (matrix.index == nullptr) return;
    load_low_words(matrix, matrix.index, window.begin + from, window.count - from, next_columns);
  };
  fetch(0);
  T left[U][N];
  int32_t left_row = -2;  // whose features left[0] holds
  // Groups of a warp stay together, for exchanges between parts of a warp run one by one.
  for (int32_t from = 0; __any_sync(0xffffffffu, from < window.count); from += U) {
    uint32_t columns[U];
    int32_t row[U];
#pragma unroll
    for (int u = 0; u < U; ++u) {
      columns[u] = static_cast<uint32_t>(window.begin + from + u);
      if (matrix.index != nullptr) {
        last_column = max(last_column, next_columns[u]);
        columns[u] = min(next_columns[u], most_column);
      }
      while (from + u == rows.end() && from + u < window.count) rows.advance();
      row[u] = rows.row();
    }
    // Narrow groups seldom are in one row, all of a warp.
    const bool share = lanes >= kWarp / 2 && row[0] == row[U - 1];
    C sums[U] = {};
    for (uint32_t step = 0; step < steps; ++step) {
      const F features = features_at(step);
      T right[U][N];
#pragma unroll
      for (int u = 0; u < U; ++u) {
        features.load(b + columns[u] * problem.b.row, from + u < window.count, right[u]);
      }
      const auto load_left = [&](int u) {
        features.load(a + (window.row + row[u]) * problem.a.row, from < window.count, left[u]);
      };
      const auto multiply = [&](int u, const T(&row_values)[N]) {
#pragma unroll
        for (int j = 0; j < N; ++j) {
          if (features.has(j)) {
            sums[u] = multiply_add(to_compute(row_values[j]), to_compute(right[u][j]), sums[u]);
          }
        }
      };
      if (step + 1 == steps) fetch(from + U);
      if (share) {
        if (steps > 1 || left_row != row[0]) load_left(0);
#pragma unroll
        for (int u = 0; u < U; ++u) multiply(u, left[0]);
      } else {
#pragma unroll
        for (int u = 0; u < U; ++u) load_left(u);
#pragma unroll
        for (int u = 0; u < U; ++u) multiply(u, left[u]);
      }
      left_row = row[0];
    }
#pragma unroll
    for (int u = 0; u < U; ++u) {
      for (uint32_t apart = args.head_lanes / 2; apart > 0; apart /= 2) {
        sums[u] += shuffle_xor(sums[u], static_cast<int>(apart));
      }
      const uint32_t head = (first + place.lane * (args.head_lanes < lanes ? N : 0)) / of_head;
      if (place.lane % args.head_lanes != 0 || from + u >= window.count || head >= problem.heads) {
        continue;
      }
      const int64_t entry = window.begin + from + u;
      const int64_t at = place_of(matrix, entry);
      static_cast<T*>(problem.out)[at * problem.heads + head] = from_compute<T>(sums[u]);
    }
  }
  assert((matrix.index == nullptr || window.count == 0 || last_column <= most_column) &&
         "index out of bounds");
}

}  // namespace

cudaError_t launch(const ProductPlan& plan, Workspace& workspace, cudaStream_t stream) {
  return with_float(plan.args.problem.dtype, [&](auto zero) {
    using T = decltype(zero);
    return plan.access == Access::kVector
               ? launch_kernel(product_rows<T, Access::kVector>, plan.shape, stream, plan.args)
               : launch_kernel(product_rows<T, Access::kSingle>, plan.shape, stream, plan.args);
  });
}

}  // namespace gpuopt::spmm
