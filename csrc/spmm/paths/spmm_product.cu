// Products of the rows that entries join (SDDMM).
#include <cassert>

#include "common/floats.cuh"
#include "common/launch.cuh"
#include "common/warp.cuh"
#include "spmm/device/spmm_access.cuh"
#include "spmm/device/spmm_walk.cuh"
#include "spmm/spmm.h"

namespace gpuopt::spmm {
namespace {

constexpr int kProducts = 4;  // entries of a thread whose loads are in flight together

template <typename T, Access kAccess>
__global__ __launch_bounds__(kThreads, 5) void product_rows(const ProductArgs args,
                                                            const void* starts) {
  using C = compute_t<T>;
  using F = Features<T, kAccess>;
  constexpr int N = F::kCount, U = kProducts;
  grid_dependency_wait();
  const ProductProblem& problem = args.problem;
  const Matrix& matrix = problem.matrix;
  const Place place(args.walk);
  const Window window(args.walk, starts, place.window);
  // A group computes the products of some heads, or reads the features of one head in `steps`.
  const uint32_t lanes = args.walk.lanes, width = lanes * N;
  const auto of_head = static_cast<uint32_t>(problem.features / problem.heads);
  const uint32_t first = place.tile * args.tile_features;
  const uint32_t steps = (args.tile_features + width - 1) / width;
  const uint32_t group = (lanes == kWarp ? ~0u : (1u << lanes) - 1)
                         << threadIdx.x % kWarp / lanes * lanes;
  const T* const a = static_cast<const T*>(problem.a.data) + first;
  const T* const b = static_cast<const T*>(problem.b.data) + first;
  const auto features_at = [&](uint32_t step) {
    return F(lanes, step, place.lane,
             min(int64_t{args.tile_features}, problem.features - int64_t{first}));
  };
  Cursor rows(matrix, window);
  bool in_range = true;
  uint32_t next_columns[U] = {};
  const auto fetch = [&](int32_t from) {
    if (matrix.index == nullptr) return;
#pragma unroll
    for (int u = 0; u < U; ++u) {
      next_columns[u] = load_word<uint32_t>(low_word(matrix, matrix.index, window.begin + from + u),
                                            from + u < window.count);
    }
  };
  fetch(0);
  T left[N];
  int32_t left_row = -2;  // whose features `left` holds
  for (int32_t from = 0; from < window.count; from += U) {
    uint32_t columns[U];
#pragma unroll
    for (int u = 0; u < U; ++u) {
      columns[u] = static_cast<uint32_t>(window.begin + from + u);
      if (matrix.index != nullptr) {
        const bool known = next_columns[u] < matrix.columns;
        in_range = in_range && (known || from + u >= window.count);
        columns[u] = known ? next_columns[u] : 0;
      }
    }
    while (from == rows.end()) rows.advance();
    const bool one_row = from + U <= min(rows.end(), window.count);
    C sums[U] = {};
    for (uint32_t step = 0; step < steps; ++step) {
      const F features = features_at(step);
      T right[U][N];
#pragma unroll
      for (int u = 0; u < U; ++u) {
        features.load(b + columns[u] * problem.b.row, from + u < window.count, right[u]);
      }
      const auto load_left = [&] {
        features.load(a + (window.row + rows.row()) * problem.a.row, true, left);
        left_row = rows.row();
      };
      const auto multiply = [&](int u) {
#pragma unroll
        for (int j = 0; j < N; ++j) {
          if (features.has(j)) {
            sums[u] = multiply_add(to_compute(left[j]), to_compute(right[u][j]), sums[u]);
          }
        }
      };
      if (step + 1 == steps) fetch(from + U);
      if (one_row) {
        if (steps > 1 || left_row != rows.row()) load_left();
#pragma unroll
        for (int u = 0; u < U; ++u) multiply(u);
      } else {
        Cursor own = rows;
#pragma unroll
        for (int u = 0; u < U; ++u) {
          if (from + u >= window.count) break;
          while (from + u == own.end()) own.advance();
          features.load(a + (window.row + own.row()) * problem.a.row, true, left);
          multiply(u);
        }
        left_row = -2;
      }
    }
    if (!one_row) {
#pragma unroll
      for (int u = 1; u < U; ++u) {
        while (from + u == rows.end() && from + u < window.count) rows.advance();
      }
    }
#pragma unroll
    for (int u = 0; u < U; ++u) {
      for (uint32_t apart = args.head_lanes / 2; apart > 0; apart /= 2) {
        sums[u] += shuffle_xor(sums[u], static_cast<int>(apart), group);
      }
      const uint32_t head = (first + place.lane * (args.head_lanes < lanes ? N : 0)) / of_head;
      if (place.lane % args.head_lanes != 0 || from + u >= window.count || head >= problem.heads) {
        continue;
      }
      const int64_t entry = window.begin + from + u;
      const int64_t at =
          matrix.entry == nullptr ? entry : int64_t{*low_word(matrix, matrix.entry, entry)};
      static_cast<T*>(problem.out)[at * problem.heads + head] = from_compute<T>(sums[u]);
    }
  }
  assert(in_range && "index out of bounds");
}

}  // namespace

cudaError_t launch(const ProductPlan& plan, Workspace& workspace, cudaStream_t stream) {
  const void* starts;
  const cudaError_t error = find_starts(plan.args.walk, workspace, stream, starts);
  if (error != cudaSuccess) return error;
  return with_float(plan.args.problem.dtype, [&](auto zero) {
    using T = decltype(zero);
    return plan.access == Access::kVector ? launch_kernel(product_rows<T, Access::kVector>,
                                                          plan.shape, stream, plan.args, starts)
                                          : launch_kernel(product_rows<T, Access::kSingle>,
                                                          plan.shape, stream, plan.args, starts);
  });
}

}  // namespace gpuopt::spmm
