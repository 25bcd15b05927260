// Reductions over the entries of rows: the kernel, and the one that adds the pieces of long rows.
#pragma once

#include <cassert>

#include "common/launch.cuh"
#include "common/warp.cuh"
#include "common/workspace.h"
#include "spmm/device/spmm_access.cuh"
#include "spmm/device/spmm_states.cuh"
#include "spmm/device/spmm_walk.cuh"
#include "spmm/device/spmm_write.cuh"
#include "spmm/paths/spmm_reduce_tiles.cuh"
#include "spmm/spmm.h"

namespace gpuopt::spmm {

// Entries that a thread loads before it uses the first. Their loads are in flight together.
constexpr int kUnroll = 4;

// Blocks of an SM, which limit the registers of a thread.
template <typename T, typename State, Access kAccess, bool kWeighted>
constexpr int kBlocks = kAccess == Access::kSpread && sizeof(T) == 8      ? 3
                        : kAccess != Access::kVector || sizeof(State) > 4 ? 4
                        : kWeighted && sizeof(T) == 2                     ? 6
                                                                          : 7;

template <typename T, typename State, Access kAccess, bool kWeighted, bool kSelects>
__global__ __launch_bounds__(kThreads, kBlocks<T, State, kAccess, kWeighted>) void reduce_rows(
    const ReduceArgs args, const void* starts, State* parts) {
  using C = compute_t<T>;
  using F = Features<T, kAccess>;
  constexpr int N = F::kCount, U = kUnroll;
  constexpr int kWeights = kAccess == Access::kVector ? 1 : N;
  const ReduceProblem& problem = args.problem;
  const Matrix& matrix = problem.matrix;
  grid_dependency_wait();
  const Place place(args.walk);
  const Window window(args.walk, starts, place.window);
  const F features(args.walk.lanes, place.tile, place.lane, problem.features);
  const T* const dense =
      static_cast<const T*>(problem.dense.data) + place.batch * problem.dense.batch;
  uint32_t head[kWeights] = {};
  if (kWeighted && problem.heads > 1) {
    const auto of_head = static_cast<uint32_t>(problem.features / problem.heads);
#pragma unroll
    for (int j = 0; j < kWeights; ++j) head[j] = features.has(j) ? features.at(j) / of_head : 0;
  }

  // What the group knows of its next entries: their columns, and the bits of their values. If these
  // are stored elsewhere, it is where.
  constexpr bool kAhead = kWeighted && kWeights == 1;
  uint32_t next_columns[U] = {};
  [[maybe_unused]] Word<std::conditional_t<sizeof(T) == 8, T, float>> next_weights[U];
  const auto fetch = [&](int32_t from) {
    const int64_t entry = window.begin + from;
    if (matrix.index != nullptr) {
#pragma unroll
      for (int u = 0; u < U; ++u) {
        next_columns[u] =
            load_word<uint32_t>(low_word(matrix, matrix.index, entry + u), from + u < window.count);
      }
    }
    if constexpr (kAhead) {
      if (matrix.entry == nullptr) {
        const T* const of_entry =
            static_cast<const T*>(problem.value) + entry * problem.heads + head[0];
#pragma unroll
        for (int u = 0; u < U; ++u) {
          next_weights[u] =
              load_word<Word<T>>(of_entry + u * problem.heads, from + u < window.count);
        }
      } else {
#pragma unroll
        for (int u = 0; u < U; ++u) {
          next_weights[u] = load_word<uint32_t>(low_word(matrix, matrix.entry, entry + u),
                                                from + u < window.count);
        }
      }
    }
  };

  State states[N];
  const auto store_part = [&](int which) {
    const Place own(args.walk);
    State* const to =
        parts + (2 * (own.batch * args.walk.windows + own.window) + which) * problem.features;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if (features.has(j)) to[features.at(j)] = states[j];
    }
  };
  Cursor rows(matrix, window);
  const auto finish_row = [&] {
    if (rows.row() < 0) {
      store_part(0);
    } else {
      write_row<T>(problem, Place(args.walk).batch, window.row + rows.row(),
                   rows.end() - rows.first(), features, states);
    }
#pragma unroll
    for (int j = 0; j < N; ++j) states[j] = State();
    rows.advance();
  };
  bool in_range = true;
  fetch(0);
  for (int32_t from = 0; from < window.count; from += U) {
    T values[U][N];
    [[maybe_unused]] T weights[U][kWeights];
    [[maybe_unused]] uint32_t columns[U];
    if (matrix.index != nullptr) {
#pragma unroll
      for (int u = 0; u < U; ++u) {
        const bool known = next_columns[u] < matrix.columns;
        in_range = in_range && (known || from + u >= window.count);
        columns[u] = known ? next_columns[u] : 0;
        features.load(dense + columns[u] * problem.dense.row, from + u < window.count, values[u]);
      }
    } else {
#pragma unroll
      for (int u = 0; u < U; ++u) {
        columns[u] = static_cast<uint32_t>(window.begin + from + u);
        features.load(dense + (window.begin + from + u) * problem.dense.row,
                      from + u < window.count, values[u]);
      }
    }
    if constexpr (kAhead) {
      if (matrix.entry == nullptr) {
#pragma unroll
        for (int u = 0; u < U; ++u) memcpy(&weights[u][0], &next_weights[u], sizeof(T));
      } else {
#pragma unroll
        for (int u = 0; u < U; ++u) {
          weights[u][0] =
              load_if(static_cast<const T*>(problem.value) +
                          static_cast<uint32_t>(next_weights[u]) * problem.heads + head[0],
                      from + u < window.count);
        }
      }
    } else if constexpr (kWeighted) {
#pragma unroll
      for (int u = 0; u < U; ++u) {
        const bool valid = from + u < window.count;
        const int64_t entry = window.begin + from + u;
        const int64_t at = matrix.entry == nullptr
                               ? entry
                               : load_word<uint32_t>(low_word(matrix, matrix.entry, entry), valid);
#pragma unroll
        for (int j = 0; j < kWeights; ++j) {
          weights[u][j] =
              load_if(static_cast<const T*>(problem.value) + at * problem.heads + head[j], valid);
        }
      }
    }
    fetch(from + U);
    const auto add = [&](int u) {
      [[maybe_unused]] const int64_t entry = window.begin + from + u;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        C x = to_compute(values[u][j]);
        if constexpr (kWeighted) x *= to_compute(weights[u][kWeights == 1 ? 0 : j]);
        if constexpr (kSelects) {
          if (!features.has(j)) continue;
          const int64_t at =
              (place.batch * matrix.columns + columns[u]) * problem.features + features.at(j);
          const int64_t own =
              matrix.entry == nullptr ? entry : number_at(matrix.entry, matrix.is_long, entry);
          if (number_at(problem.selected, matrix.is_long, at) != own) continue;
        }
        states[j].add(x, entry);
      }
    };
    if (from + U <= min(rows.end(), window.count)) {  // most often
#pragma unroll
      for (int u = 0; u < U; ++u) add(u);
    } else {
#pragma unroll
      for (int u = 0; u < U; ++u) {
        while (from + u == rows.end()) finish_row();
        if (from + u < window.count) add(u);
      }
    }
  }
  assert(in_range && "index out of bounds");
  while (rows.has_row() && !rows.is_open()) finish_row();
  if (rows.has_row() && starts != nullptr) store_part(rows.row() < 0 ? 0 : 1);
}

// A warp for each window, and kSpread features of a thread, adds the parts of the row that begins
// in the window and does not end in it. If there are many, the warps of the block share them.
template <typename T, typename State>
__global__ __launch_bounds__(kFinishThreads) void add_parts(const ReduceArgs args,
                                                            const void* starts,
                                                            const State* parts) {
  using F = Features<T, Access::kSpread>;
  constexpr int N = F::kCount;
  constexpr uint32_t kWarps = kFinishThreads / kWarp;
  constexpr int64_t kMany = 32;
  grid_dependency_wait();
  const ReduceProblem& problem = args.problem;
  const Walk& walk = args.walk;
  const uint32_t outer = blockIdx.x / args.finish_blocks;
  const uint32_t tile = outer % args.finish_tiles, batch = outer / args.finish_tiles;
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const F features(kWarp, tile, lane, problem.features);
  const int64_t first_window = int64_t{blockIdx.x % args.finish_blocks} * kWarps;

  // Adds every step-th part from number `from` on.
  const auto add = [&](int64_t window, int64_t from, int64_t step, int64_t count,
                       State(&states)[N]) {
    const State* const of_window = parts + 2 * (batch * walk.windows + window) * problem.features;
#pragma unroll 2
    for (int64_t part = from; part < count; part += step) {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        if (!features.has(j)) continue;
        states[j].merge(of_window[(2 * part + (part == 0)) * problem.features + features.at(j)]);
      }
    }
  };
  const auto finish = [&](const Window& window, const State(&states)[N]) {
    const int64_t row = window.row + window.rows - 1, first = start_of(walk.matrix, row);
    write_row<T>(problem, batch, row, start_of(walk.matrix, row + 1) - first, features, states);
  };
  __shared__ int64_t counts[kWarps];
  __shared__ State shared[kFinishThreads];
  const Window own(walk, starts, first_window + warp);
  int64_t count = 0;
  if (own.rows > 0) {
    const int64_t row = own.row + own.rows - 1, end = start_of(walk.matrix, row + 1);
    if (end > own.begin + own.count) {
      count = (end + row) / walk.window - (first_window + warp) + 1;
    }
  }
  if (lane == 0) counts[warp] = count;
  if (count > 0 && count <= kMany) {
    State states[N];
    add(first_window + warp, 0, 1, count, states);
    finish(own, states);
  }
  __syncthreads();
  for (uint32_t w = 0; w < kWarps; ++w) {
    if (counts[w] <= kMany) continue;
    State states[N];
    add(first_window + w, warp, kWarps, counts[w], states);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      __syncthreads();
      shared[threadIdx.x] = states[j];
      __syncthreads();
      for (uint32_t other = 1; other < kWarps && warp == 0; ++other) {
        states[j].merge(shared[other * kWarp + lane]);
      }
    }
    if (warp == 0) finish(Window(walk, starts, first_window + w), states);
  }
}

// Runs a kernel, and adds the parts that it leaves.
template <typename T, typename State>
cudaError_t run(void (*kernel)(ReduceArgs, const void*, State*), const ReducePlan& plan,
                Workspace& workspace, cudaStream_t stream) {
  assert(state_bytes(plan.args.problem.reduce, plan.args.problem.dtype) == sizeof(State));
  const void* starts;
  cudaError_t error = find_starts(plan.args.walk, workspace, stream, starts);
  if (error != cudaSuccess) return error;
  State* parts = nullptr;
  if (plan.part_bytes > 0) {
    parts = static_cast<State*>(workspace.allocate(plan.part_bytes));
    if (parts == nullptr) return cudaErrorMemoryAllocation;
  }
  error = launch_kernel(kernel, plan.shape, stream, plan.args, starts, parts);
  if (error != cudaSuccess || parts == nullptr) return error;
  return launch_kernel(add_parts<T, State>, plan.finish, stream, plan.args, starts,
                       static_cast<const State*>(parts));
}

// Runs the kernel for the plan's access. Integers, products and softmax have neither values nor
// vectors. Of tiles, only sums have values.
template <typename T, typename State>
cudaError_t run_any(const ReducePlan& plan, Workspace& workspace, cudaStream_t stream) {
  constexpr bool kIsPlain = std::is_integral_v<compute_t<T>> || requires(State state) {
    state.product;
  } || requires(State state) { state.most; };
  const auto with_access = [&](auto weighted) {
    constexpr bool kWeighted = decltype(weighted)::value;
    const auto run_kernel = [&](auto kernel) {
      return run<T, State>(kernel, plan, workspace, stream);
    };
    if constexpr (!kWeighted || requires(State state) { state.sum; }) {
      if (plan.access == Access::kTile) return run_kernel(reduce_tiles<T, State, kWeighted>);
    }
    if constexpr (!kIsPlain) {
      if (plan.access == Access::kVector) {
        return run_kernel(reduce_rows<T, State, Access::kVector, kWeighted, false>);
      }
    }
    return plan.access == Access::kSpread
               ? run_kernel(reduce_rows<T, State, Access::kSpread, kWeighted, false>)
               : run_kernel(reduce_rows<T, State, Access::kSingle, kWeighted, false>);
  };
  if constexpr (!kIsPlain) {
    if (plan.args.problem.value != nullptr) return with_access(std::true_type());
  }
  assert(plan.args.problem.value == nullptr);
  return with_access(std::false_type());
}

}  // namespace gpuopt::spmm
