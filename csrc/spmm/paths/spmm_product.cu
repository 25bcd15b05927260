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

constexpr int kProducts = 8;  // entries of a thread whose loads are in flight together

template <typename T, Access kAccess>
__global__ __launch_bounds__(kThreads) void product_rows(const ProductArgs args) {
  using C = compute_t<T>;
  using F = Features<T, kAccess>;
  constexpr int N = F::kCount;
  const ProductProblem& problem = args.problem;
  const Matrix& matrix = problem.matrix;
  const Place place = place_of(args.walk);
  const int64_t width = problem.features / problem.heads;  // of a head, which is a tile
  const T* a = static_cast<const T*>(problem.a.data) + place.tile * width;
  const T* b = static_cast<const T*>(problem.b.data) + place.tile * width;
  if (place.row.row >= 0) a += place.row.row * problem.a.row;
  const uint32_t warp_lane = threadIdx.x % kWarp;
  const uint32_t group =
      (place.lanes == kWarp ? ~0u : (1u << place.lanes) - 1) << warp_lane / place.lanes * place.lanes;
  bool in_range = true;
  for (int64_t from = place.begin; from < place.end; from += int64_t{kProducts} * place.parts) {
    int64_t at[kProducts];
    uint32_t columns[kProducts], valid = 0;
#pragma unroll
    for (int u = 0; u < kProducts; ++u) {
      const int64_t entry = from + place.part + int64_t{u} * place.parts;
      const bool has = entry < place.end;
      columns[u] = matrix.index == nullptr
                       ? static_cast<uint32_t>(entry)
                       : load_word<uint32_t>(low_word(matrix, matrix.index, entry), has);
      at[u] = matrix.entry == nullptr
                  ? entry
                  : load_word<uint32_t>(low_word(matrix, matrix.entry, entry), has);
      const bool known = !has || columns[u] < matrix.columns;
      in_range = in_range && known;
      valid |= static_cast<uint32_t>(has && known) << u;
    }
    C sums[kProducts] = {};
    for (int64_t tile = 0; tile < width; tile += int64_t{args.walk.entry_lanes} * N) {
      const F features(args.walk, static_cast<uint32_t>(tile / (args.walk.entry_lanes * N)),
                       place.lane, width);
      T left[N], right[kProducts][N];
      features.load(a, true, left);
#pragma unroll
      for (int u = 0; u < kProducts; ++u) {
        features.load(b + columns[u] * problem.b.row, valid >> u & 1, right[u]);
      }
#pragma unroll
      for (int u = 0; u < kProducts; ++u) {
#pragma unroll
        for (int j = 0; j < N; ++j) {
          if (features.has(j)) {
            sums[u] = multiply_add(to_compute(left[j]), to_compute(right[u][j]), sums[u]);
          }
        }
      }
    }
#pragma unroll
    for (int u = 0; u < kProducts; ++u) {
      for (uint32_t apart = args.walk.entry_lanes / 2; apart > 0; apart /= 2) {
        sums[u] += shuffle_xor(sums[u], static_cast<int>(apart), group);
      }
      if (place.lane == 0 && (valid >> u & 1)) {
        static_cast<T*>(problem.out)[at[u] * problem.heads + place.tile] = from_compute<T>(sums[u]);
      }
    }
  }
  assert(in_range && "index out of bounds");
}

}  // namespace

cudaError_t launch(const ProductPlan& plan, cudaStream_t stream) {
  return with_float(plan.args.problem.dtype, [&](auto zero) {
    using T = decltype(zero);
    return plan.access == Access::kVector
               ? launch_kernel(product_rows<T, Access::kVector>, plan.shape, stream, plan.args)
               : launch_kernel(product_rows<T, Access::kSingle>, plan.shape, stream, plan.args);
  });
}

}  // namespace gpuopt::spmm
