// Bags of rows in one launch. A group of threads has a bag, or a part of a long one:
//
//   lanes 4, team 2     | bag 0           | bag 1           | bag 2          | bag 3          |
//   thread                0-3 4-7           8-11 12-15        16 ...           24 ...
//   entry of the bag      0   1             0    1            0    1           0    1
//
// A thread has the loads of four rows in flight, and of the next four numbers of rows.
#include <cassert>

#include "common/floats.cuh"
#include "common/launch.cuh"
#include "common/warp.cuh"
#include "rows/device/rows_access.cuh"
#include "rows/device/rows_walk.cuh"
#include "spmm/spmm_bags.h"

namespace gpuopt::spmm {
namespace {

// The entry with which a bag begins.
__device__ __forceinline__ int64_t start_of(const BagProblem& problem, int64_t bag) {
  if (bag <= 0) return 0;
  if (bag >= problem.bags) return problem.entries;
  const int64_t start = number_at(problem.offset, problem.is_long, bag);
  return min(max(start, int64_t{0}), problem.entries);
}

template <typename T, Access kAccess, bool kIsMax, bool kWeighted>
__global__ __launch_bounds__(kBagThreads) void reduce_bags(const BagArgs args) {
  using C = compute_t<T>;
  using F = Features<T, kAccess>;
  constexpr int N = F::kCount, U = kBagRows;
  const BagProblem& problem = args.problem;
  const uint32_t lanes = args.lanes, team = args.team, of_bag = lanes * team;
  const uint32_t tile = blockIdx.x % args.tiles, lane = threadIdx.x % lanes;
  const uint32_t number = threadIdx.x % of_bag / lanes;  // of the group in its team
  const int64_t bag =
      int64_t{blockIdx.x / args.tiles} * (kBagThreads / of_bag) + threadIdx.x / of_bag;
  const bool has_bag = bag < problem.bags;
  const F features(lanes, tile, lane, problem.features);
  const T* const table = static_cast<const T*>(problem.table.data);
  grid_dependency_wait();
  launch_next();
  const int64_t begin = start_of(problem, bag), end = start_of(problem, bag + 1);
  assert(begin <= end && "offsets must not descend");

  int64_t next[U];
  const auto fetch = [&](int64_t from) {
    const auto load = [&](auto zero) {  // all loads are in flight before one is converted
      decltype(zero) words[U];
#pragma unroll
      for (int u = 0; u < U; ++u) {
        const int64_t at = from + u * team;
        words[u] = load_if(static_cast<const decltype(zero)*>(problem.index) + at, at < end);
      }
#pragma unroll
      for (int u = 0; u < U; ++u) next[u] = words[u];
    };
    problem.is_long ? load(int64_t{}) : load(int32_t{});
  };
  C states[N] = {};
  [[maybe_unused]] uint32_t winners[N] = {};
  uint32_t size = 0;
  fetch(begin + number);
  if (tile == 0) {
    for (int64_t at = begin + threadIdx.x % of_bag; at < end; at += of_bag) {
      store_number(problem.bag_of, problem.is_long, at, bag);
    }
  }
#pragma unroll 1
  for (int64_t entry = begin + number; entry < end; entry += U * team) {
    T values[U][N];
    [[maybe_unused]] T weights[U];
    uint32_t rows[U];
    bool counts[U];
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const int64_t at = entry + u * team;
      const bool is_row =
          static_cast<uint64_t>(next[u]) < static_cast<uint64_t>(problem.table_rows);
      assert((at >= end || is_row) && "index out of bounds");
      counts[u] = at < end && next[u] != problem.padding && is_row;
      rows[u] = static_cast<uint32_t>(next[u]);
      features.load(table + rows[u] * problem.table.row, counts[u], values[u]);
      if constexpr (kWeighted) {
        weights[u] = load_if(static_cast<const T*>(problem.value) + at, counts[u]);
      }
    }
    fetch(entry + U * team);
#pragma unroll
    for (int u = 0; u < U; ++u) {
      if (!counts[u]) continue;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const C x = to_compute(values[u][j]);
        if constexpr (kIsMax) {
          const bool is_greater = size == 0 || x > states[j];
          states[j] = is_greater ? x : states[j];
          winners[j] = is_greater ? rows[u] : winners[j];
        } else if constexpr (kWeighted) {
          states[j] = multiply_add(to_compute(weights[u]), x, states[j]);
        } else {
          states[j] += x;
        }
      }
      ++size;
    }
  }
  for (uint32_t apart = of_bag / 2; apart >= lanes; apart /= 2) {
    size += shuffle_xor(size, static_cast<int>(apart));
#pragma unroll
    for (int j = 0; j < N; ++j) states[j] += shuffle_xor(states[j], static_cast<int>(apart));
  }
  if (!has_bag || number != 0) return;
  T results[N];
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const bool divides = problem.bag == Bag::kMean && size > 0;
    results[j] = from_compute<T>(divides ? states[j] / static_cast<C>(size) : states[j]);
  }
  features.store(static_cast<T*>(problem.out) + bag * problem.features, results);
  if (tile == 0 && lane == 0) store_number(problem.size, problem.is_long, bag, size);
  if constexpr (kIsMax) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if (!features.has(j)) continue;
      const int64_t winner = size > 0 ? int64_t{winners[j]} : -1;
      store_number(problem.winner, problem.is_long, bag * problem.features + features.at(j),
                   winner);
    }
  }
}

template <typename T, Access kAccess>
cudaError_t launch_bags(const BagPlan& plan, cudaStream_t stream) {
  const BagProblem& problem = plan.args.problem;
  const auto kernel = problem.bag == Bag::kMax   ? reduce_bags<T, kAccess, true, false>
                      : problem.value == nullptr ? reduce_bags<T, kAccess, false, false>
                                                 : reduce_bags<T, kAccess, false, true>;
  return launch_kernel(kernel, plan.shape, stream, plan.args);
}

}  // namespace

cudaError_t launch(const BagPlan& plan, cudaStream_t stream) {
  return with_float(plan.args.problem.dtype, [&](auto zero) {
    using T = decltype(zero);
    return plan.access == Access::kVector ? launch_bags<T, Access::kVector>(plan, stream)
                                          : launch_bags<T, Access::kSpread>(plan, stream);
  });
}

}  // namespace gpuopt::spmm
