// Reductions over the entries of rows.
#pragma once

#include <cassert>

#include "common/launch.cuh"
#include "common/warp.cuh"
#include "common/workspace.h"
#include "rows/device/rows_access.cuh"
#include "rows/device/rows_block_parts.cuh"
#include "rows/device/rows_states.cuh"
#include "rows/device/rows_walk.cuh"
#include "rows/paths/rows_parts.cuh"
#include "rows/paths/rows_reduce_few.cuh"
#include "rows/paths/rows_reduce_tiles.cuh"
#include "rows/rows.h"

namespace gpuopt::rows {

// Entries that a thread loads before it uses the first. Their loads are in flight together.
constexpr int kUnroll = 4;

// Blocks of an SM, which limit the registers of a thread.
template <typename T, typename State, Access kAccess, bool kWeighted>
constexpr int kBlocks = kAccess == Access::kSpread && sizeof(T) == 8      ? 3
                        : kAccess != Access::kVector || sizeof(State) > 4 ? 4
                        : kWeighted && sizeof(T) == 2                     ? 7
                                                                          : 8;

// Keeps the compiler from converting values long before they are used, which needs more registers.
template <typename T, int N>
__device__ __forceinline__ void hold(T (&values)[N]) {
  uint32_t words[sizeof(values) / 4];
  memcpy(words, values, sizeof(values));
#if defined(__CUDA_ARCH__)
#pragma unroll
  for (uint32_t& word : words) asm volatile("" : "+r"(word));
#endif
  memcpy(values, words, sizeof(values));
}

template <typename T, typename State, Access kAccess, bool kWeighted, bool kSelects>
__global__ __launch_bounds__(kThreads, kBlocks<T, State, kAccess, kWeighted>) void reduce_rows(
    const ReduceArgs args, void* starts, State* parts) {
  using C = compute_t<T>;
  using F = Features<T, kAccess>;
  constexpr int N = F::kCount, U = kUnroll;
  constexpr int kWeights = kAccess == Access::kVector ? 1 : N;
  const ReduceProblem& problem = args.problem;
  const Matrix& matrix = problem.matrix;
  grid_dependency_wait();
  const Place place(args.walk);
  const Window window(args.walk, place.window, args.walk.lanes);
  if (starts != nullptr && threadIdx.x == 0 && place.tile == 0 && place.batch == 0) {
    store_number(starts, matrix.is_long, blockIdx.x, window.row);
  }
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
  const auto last_entry = static_cast<uint32_t>(matrix.entries - 1);
  constexpr bool kAhead = kWeighted && kWeights == 1;
  uint32_t next_columns[U] = {};
  [[maybe_unused]] Word<std::conditional_t<sizeof(T) == 8, T, float>> next_weights[U];
  const auto fetch = [&](int32_t from) {
    const int64_t entry = window.begin + from;
    if (matrix.index != nullptr) {
      load_low_words(matrix, matrix.index, entry, window.count - from, next_columns);
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
        uint32_t places[U];
        load_low_words(matrix, matrix.entry, entry, window.count - from, places);
#pragma unroll
        for (int u = 0; u < U; ++u) next_weights[u] = min(places[u], last_entry);
      }
    }
  };

  __shared__ State heads[N][kThreads];
  __shared__ bool closes[kThreads];
  BlockParts<State, N> shared{heads, closes};
  State states[N];
  Cursor rows(matrix, window);
  char* result = result_at<T, State>(problem, place.batch, window.row);
  const auto finish_row = [&] {
    if (rows.row() < 0) {
      shared.keep_head(args.walk, states, true);
    } else {
      write_row<T>(problem, result, place.batch, window.row + rows.row(), rows.end() - rows.first(),
                   features, states);
      result += problem.out.row * bytes_of_result<T, State>(problem);
    }
#pragma unroll
    for (int j = 0; j < N; ++j) states[j] = State();
    rows.advance();
  };
  const bool has_head = rows.row() < 0;
  uint32_t last_column = 0;  // that any entry has
  const auto most_column = static_cast<uint32_t>(matrix.columns - 1);
  fetch(0);
  for (int32_t from = 0; from < window.count; from += U) {
    T values[U][N];
    [[maybe_unused]] T weights[U][kWeights];
    [[maybe_unused]] uint32_t columns[U];
    if (matrix.index != nullptr) {
#pragma unroll
      for (int u = 0; u < U; ++u) {
        last_column = max(last_column, next_columns[u]);
        columns[u] = min(next_columns[u], most_column);
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
#pragma unroll
      for (int u = 0; u < U; ++u) {
        if (matrix.entry == nullptr) {
          memcpy(&weights[u][0], &next_weights[u], sizeof(T));
        } else {
          const int64_t at = static_cast<uint32_t>(next_weights[u]) * problem.heads + head[0];
          weights[u][0] =
              load_if(static_cast<const T*>(problem.value) + at, from + u < window.count);
        }
      }
    } else if constexpr (kWeighted) {
#pragma unroll
      for (int u = 0; u < U; ++u) {
        const bool valid = from + u < window.count;
        const int64_t entry = window.begin + from + u;
        const int64_t at =
            matrix.entry == nullptr
                ? entry
                : min(load_word<uint32_t>(low_word(matrix, matrix.entry, entry), valid),
                      last_entry);
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
      T loaded[N];
      memcpy(loaded, values[u], sizeof(loaded));
      if constexpr (kAccess == Access::kVector && (kWeighted || sizeof(T) == 2)) hold(loaded);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        C x = to_compute(loaded[j]);
        if constexpr (kWeighted) x *= to_compute(weights[u][kWeights == 1 ? 0 : j]);
        if constexpr (kSelects) {
          if (!features.has(j)) continue;
          const int64_t at =
              (place.batch * matrix.columns + columns[u]) * problem.features + features.at(j);
          const int64_t number =
              matrix.entry == nullptr ? entry : number_at(matrix.entry, matrix.is_long, entry);
          if (number_at(problem.selected, matrix.is_long, at) != number) continue;
        }
        states[j].add(x, entry);
      }
    };
    // Groups of a warp add entries and finish rows together, though their rows end elsewhere.
    const int32_t end = min(from + U, window.count);
    for (int32_t done = from;;) {
      const int32_t stop = min(rows.end(), end);
#pragma unroll
      for (int u = 0; u < U; ++u) {
        if (from + u >= done && from + u < stop) add(u);
      }
      if (rows.end() > end) break;
      done = stop;
      finish_row();
    }
  }
  assert((matrix.index == nullptr || window.count == 0 || last_column <= most_column) &&
         "index out of bounds");
  while (rows.has_row() && !rows.is_open()) finish_row();
  finish_block(
      shared, args.walk, rows, has_head, states,
      [&](const State(&all)[N]) {
        const int64_t row = window.row + rows.row(), first = start_of(matrix, row);
        write_row<T>(problem, result, place.batch, row, start_of(matrix, row + 1) - first, features,
                     all);
      },
      [&](int which, const State(&all)[N]) {
        if (parts == nullptr) return;  // all rows of a matrix end in the only block
        const int64_t block = place.batch * args.walk.blocks + blockIdx.x % args.walk.blocks;
        State* const to = parts + (2 * block + which) * problem.features;
#pragma unroll
        for (int j = 0; j < N; ++j) {
          if (features.has(j)) to[features.at(j)] = all[j];
        }
      });
}

// Runs a kernel, and adds the parts that it leaves.
template <typename T, typename State>
cudaError_t run(void (*kernel)(ReduceArgs, void*, State*), const ReducePlan& plan,
                Workspace& workspace, cudaStream_t stream) {
  assert(state_bytes(plan.args.problem.reduce, plan.args.problem.dtype) == sizeof(State));
  return launch_with_parts<T>(kernel, plan.args, plan.shape, plan, workspace, stream);
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
    if (plan.is_few) {
      if constexpr (!kIsPlain) {
        if (plan.access == Access::kVector) {
          return launch_kernel(reduce_few<T, State, Access::kVector, kWeighted>, plan.shape, stream,
                               plan.args);
        }
      }
      return launch_kernel(reduce_few<T, State, Access::kSingle, kWeighted>, plan.shape, stream,
                           plan.args);
    }
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

}  // namespace gpuopt::rows
