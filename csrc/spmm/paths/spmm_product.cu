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
__global__ __launch_bounds__(kThreads) void product_rows(const ProductArgs args,
                                                         const void* starts) {
  using C = compute_t<T>;
  using F = Features<T, kAccess>;
  constexpr int N = F::kCount, U = kProducts;
  const ProductProblem& problem = args.problem;
  const Matrix& matrix = problem.matrix;
  grid_dependency_wait();
  const Place place(args.walk);
  const Window window(args.walk, starts, place.window);
  const int64_t width = problem.features / problem.heads;  // of a head, which is a tile
  const T* const a = static_cast<const T*>(problem.a.data) + place.tile * width;
  const T* const b = static_cast<const T*>(problem.b.data) + place.tile * width;
  const uint32_t lanes = args.walk.lanes;
  const uint32_t group = (lanes == kWarp ? ~0u : (1u << lanes) - 1)
                         << threadIdx.x % kWarp / lanes * lanes;
  Cursor rows(matrix, window);
  bool in_range = true;
  for (int32_t from = 0; from < window.count; from += U) {
    uint32_t columns[U], valid = 0;
    int64_t row[U];
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const bool has = from + u < window.count;
      columns[u] =
          matrix.index == nullptr
              ? static_cast<uint32_t>(window.begin + from + u)
              : load_word<uint32_t>(low_word(matrix, matrix.index, window.begin + from + u), has);
      const bool known = !has || columns[u] < matrix.columns;
      in_range = in_range && known;
      valid |= static_cast<uint32_t>(has && known) << u;
      while (has && from + u == rows.end()) rows.advance();
      row[u] = window.row + rows.row();
    }
    C sums[U] = {};
    for (int64_t tile = 0; tile < width; tile += int64_t{lanes} * N) {
      const F features(lanes, static_cast<uint32_t>(tile / (lanes * N)), place.lane, width);
      T left[U][N], right[U][N];
#pragma unroll
      for (int u = 0; u < U; ++u) {
        features.load(b + columns[u] * problem.b.row, valid >> u & 1, right[u]);
      }
#pragma unroll
      for (int u = 0; u < U; ++u) {
        features.load(a + row[u] * problem.a.row, valid >> u & 1, left[u]);
      }
#pragma unroll
      for (int u = 0; u < U; ++u) {
#pragma unroll
        for (int j = 0; j < N; ++j) {
          if ((valid >> u & 1) && features.has(j)) {
            sums[u] = multiply_add(to_compute(left[u][j]), to_compute(right[u][j]), sums[u]);
          }
        }
      }
    }
#pragma unroll
    for (int u = 0; u < U; ++u) {
      for (uint32_t apart = lanes / 2; apart > 0; apart /= 2) {
        sums[u] += shuffle_xor(sums[u], static_cast<int>(apart), group);
      }
      if (place.lane != 0 || !(valid >> u & 1)) continue;
      const int64_t entry = window.begin + from + u;
      const int64_t at =
          matrix.entry == nullptr ? entry : int64_t{*low_word(matrix, matrix.entry, entry)};
      static_cast<T*>(problem.out)[at * problem.heads + place.tile] = from_compute<T>(sums[u]);
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
