// Attention over the entries of each row, in one pass: scores, their softmax, and the weighted sum
// (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).
#include <cassert>

#include "common/launch.cuh"
#include "graph_attention/graph_attention.h"
#include "graph_attention/graph_attention_heads.cuh"
#include "rows/device/rows_block_parts.cuh"
#include "rows/device/rows_states.cuh"
#include "rows/paths/rows_parts.cuh"

namespace gpuopt::graph_attention {

// The result of a row whose parts add_parts() has merged.
template <typename T, typename C, typename F>
__device__ __forceinline__ void write_row(const AttentionProblem& problem, int64_t /*batch*/,
                                          int64_t row, int64_t entries, const F& features,
                                          const AttentionState<C> (&states)[F::kCount]) {
  const auto of_head = static_cast<uint32_t>(problem.features / problem.heads);
  T* const out = static_cast<T*>(problem.out.data) + row * problem.out.row;
#pragma unroll
  for (int j = 0; j < F::kCount; ++j) {
    const uint32_t at = features.at(j);
    if (!features.has(j)) continue;
    out[at] = from_compute<T>(entries > 0 ? states[j].result() : C(0));
    if (at % of_head == 0) {
      static_cast<C*>(problem.log_sum)[row * problem.heads + at / of_head] = states[j].log_sum();
    }
  }
}

namespace {

template <typename T, bool kProduct>
__global__ __launch_bounds__(kThreads, kAttentionBlocks<T, kProduct, false>) void attend(
    const AttentionArgs args, void* starts, AttentionState<compute_t<T>>* parts) {
  using C = compute_t<T>;
  using State = AttentionState<C>;
  constexpr int N = kVecSize<T>, U = kAttended;
  const AttentionProblem& problem = args.problem;
  const Matrix& matrix = problem.matrix;
  grid_dependency_wait();
  const Place place(args.walk);
  const Window window(args.walk, place.window, args.walk.lanes);
  if (starts != nullptr && threadIdx.x == 0 && place.tile == 0) {
    store_number(starts, matrix.is_long, blockIdx.x, window.row);
  }
  const HeadPart<T> part(args, place);

  // The state of the row, without the features of other threads.
  C most = -INFINITY, sum = C(0), values[N] = {};
  const auto states_of = [&](State(&states)[N]) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      states[j].most = most;
      states[j].sum = sum;
      states[j].value = values[j];
    }
  };
  __shared__ State heads[N][kThreads];
  __shared__ bool closes[kThreads];
  BlockParts<State, N> shared{heads, closes};
  Cursor rows(matrix, window);
  const auto write = [&](const State(&states)[N], bool has_entries) {
    if (!part.has_value) return;
    const int64_t row = window.row + rows.row();
    Vec<T, N> results;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      results.values[j] = from_compute<T>(has_entries ? states[j].result() : C(0));
    }
    store_vec(static_cast<T*>(problem.out.data) + row * problem.out.row + part.value, results);
    if (part.leads) {
      static_cast<C*>(problem.log_sum)[row * problem.heads + part.head] = states[0].log_sum();
    }
  };
  const auto finish_row = [&] {
    State states[N];
    states_of(states);
    if (rows.row() < 0) {
      shared.keep_head(args.walk, states, true);
    } else {
      write(states, rows.end() > rows.first());
    }
    most = -INFINITY;
    sum = C(0);
#pragma unroll
    for (int j = 0; j < N; ++j) values[j] = C(0);
    rows.advance();
  };

  const bool has_bias = problem.bias != nullptr;
  NextEntries next(matrix, window);
  const bool has_head = rows.row() < 0;
  next.fetch(0, has_bias);
  for (int32_t from = 0; __any_sync(0xffffffffu, from < window.count); from += U) {
    // Load.
    ScoreOperand<T, kProduct> left[U], right[U];
    T dense[U][N], bias[U];
    Cursor row_cursor = rows;
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const bool valid = from + u < window.count;
      const int64_t column = next.column(u);
      while (from + u == row_cursor.end() && valid) row_cursor.advance();
      left[u].load(problem, part, problem.left, window.row + row_cursor.row(), valid);
      right[u].load(problem, part, problem.right, column, valid);
      load_values(
          static_cast<const T*>(problem.value.data) + column * problem.value.row + part.value,
          valid && part.has_value, dense[u]);
      if (has_bias) {
        bias[u] = load_if(
            static_cast<const T*>(problem.bias) + next.place(from, u) * problem.heads + part.head,
            valid && part.has_head(problem));
      }
    }
    next.fetch(from + U, has_bias);

    // Score.
    C scores[U] = {};
#pragma unroll
    for (int u = 0; u < U; ++u) scores[u] = score_share(part, left[u], right[u]);
    if constexpr (kProduct) add_shares(args, scores);
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const auto factor = static_cast<C>(problem.factor);
      if constexpr (kProduct) scores[u] *= factor;
      if (has_bias) scores[u] += to_compute(bias[u]);
      if constexpr (!kProduct) scores[u] = scores[u] > C(0) ? scores[u] : scores[u] * factor;
    }

    // Add the entries begin to end - 1 to the state.
    const auto add = [&](int32_t begin, int32_t end) {
      C limit = most;
#pragma unroll
      for (int u = 0; u < U; ++u) {
        if (u >= begin && u < end) limit = max(limit, scores[u]);
      }
      const C rescale = State::power(most, limit);
      most = limit;
      sum *= rescale;
#pragma unroll
      for (int j = 0; j < N; ++j) values[j] *= rescale;
#pragma unroll
      for (int u = 0; u < U; ++u) {
        if (u < begin || u >= end) continue;
        const C weight = State::power(scores[u], limit);
        sum += weight;
#pragma unroll
        for (int j = 0; j < N; ++j) {
          values[j] = multiply_add(weight, to_compute(dense[u][j]), values[j]);
        }
      }
    };
    // Groups of a warp add entries and finish rows together, as in reduce_rows().
    const int32_t end = min(from + U, window.count);
    for (int32_t done = from;;) {
      const int32_t stop = min(rows.end(), end);
      add(done - from, stop - from);
      if (rows.end() > end) break;
      done = stop;
      finish_row();
    }
  }
  assert(next.in_range() && "index out of bounds");
  while (rows.has_row() && !rows.is_open()) finish_row();
  State states[N];
  states_of(states);
  finish_block(
      shared, args.walk, rows, has_head, states, [&](const State(&all)[N]) { write(all, true); },
      [&](int which, const State(&all)[N]) {
        const int64_t block = blockIdx.x % args.walk.blocks;
        State* const to = parts + (2 * block + which) * problem.features + part.value;
        if (parts == nullptr || !part.has_value) return;  // as in reduce_rows()
#pragma unroll
        for (int j = 0; j < N; ++j) to[j] = all[j];
      });
}

}  // namespace

cudaError_t launch(const AttentionPlan& plan, Workspace& workspace, cudaStream_t stream) {
  return with_float(plan.args.problem.dtype, [&](auto zero) {
    using T = decltype(zero);
    assert(attention_state_bytes(plan.args.problem.dtype) == sizeof(AttentionState<compute_t<T>>));
    const auto kernel = plan.args.problem.is_product() ? attend<T, true> : attend<T, false>;
    return launch_with_parts<T>(kernel, plan.args, plan.shape, plan, workspace, stream);
  });
}

}  // namespace gpuopt::graph_attention
