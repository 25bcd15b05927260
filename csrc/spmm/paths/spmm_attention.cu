// Attention over the entries of each row, in one pass: scores, their softmax, and the weighted sum
// (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).
#include <cassert>

#include "common/launch.cuh"
#include "spmm/device/spmm_attention.cuh"
#include "spmm/paths/spmm_reduce.cuh"
#include "spmm/spmm.h"

namespace gpuopt::spmm {

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
__global__ __launch_bounds__(kThreads, kAttentionBlocks<T, false>) void attend(
    const AttentionArgs args, const void* starts, AttentionState<compute_t<T>>* parts) {
  using C = compute_t<T>;
  using State = AttentionState<C>;
  constexpr int N = kVecSize<T>, U = kAttended;
  const AttentionProblem& problem = args.problem;
  const Matrix& matrix = problem.matrix;
  grid_dependency_wait();
  const Place place(args.walk);
  const Window window(args.walk, starts, place.window);
  const HeadPart<T> part(args, place);

  // The state of the row, without the features of other threads.
  C most = -INFINITY, sum = C(0), values[N] = {};
  const auto state_of = [&](int j) {
    State state;
    state.most = most;
    state.sum = sum;
    state.value = values[j];
    return state;
  };
  const auto store_part = [&](int which) {
    State* const to = parts + (2 * place.window + which) * problem.features + part.value;
    if (!part.has_value) return;
#pragma unroll
    for (int j = 0; j < N; ++j) to[j] = state_of(j);
  };
  Cursor rows(matrix, window);
  const auto finish_row = [&] {
    const int64_t row = window.row + rows.row();
    if (rows.row() < 0) {
      store_part(0);
    } else if (part.has_value) {
      Vec<T, N> results;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const C result = rows.end() > rows.first() ? state_of(j).result() : C(0);
        results.values[j] = from_compute<T>(result);
      }
      T* const out = static_cast<T*>(problem.out.data) + row * problem.out.row;
      store_vec(out + part.value, results);
      if (part.leads) {
        static_cast<C*>(problem.log_sum)[row * problem.heads + part.head] = state_of(0).log_sum();
      }
    }
    most = -INFINITY;
    sum = C(0);
#pragma unroll
    for (int j = 0; j < N; ++j) values[j] = C(0);
    rows.advance();
  };

  const bool has_bias = problem.bias != nullptr;
  NextEntries next(matrix, window);
  ScoreOperand<T, kProduct> left;
  int32_t left_row = -2;  // the row of `left`
  bool in_range = true;
  next.fetch(0, has_bias);
  for (int32_t from = 0; from < window.count; from += U) {
    // Load.
    ScoreOperand<T, kProduct> right[U];
    T dense[U][N], bias[U];
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const bool valid = from + u < window.count;
      in_range = in_range && (next.is_known(u) || !valid);
      const int64_t column = next.column(u);
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
    while (from == rows.end()) finish_row();
    const bool one_row = from + U <= min(rows.end(), window.count);
    const auto load_left = [&](int32_t row) {
      if (left_row == row) return;
      left.load(problem, part, problem.left, window.row + row, true);
      left_row = row;
    };
    C scores[U] = {};
    if (one_row) {  // most often
      load_left(rows.row());
#pragma unroll
      for (int u = 0; u < U; ++u) scores[u] = score_share(part, left, right[u]);
    } else {
      Cursor own = rows;
#pragma unroll
      for (int u = 0; u < U; ++u) {
        if (from + u >= window.count) break;
        while (from + u == own.end()) own.advance();
        load_left(own.row());
        scores[u] = score_share(part, left, right[u]);
      }
    }
    if constexpr (kProduct) add_shares(args, scores);
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const auto factor = static_cast<C>(problem.factor);
      if constexpr (kProduct) scores[u] *= factor;
      if (has_bias) scores[u] += to_compute(bias[u]);
      if constexpr (!kProduct) scores[u] = scores[u] > C(0) ? scores[u] : scores[u] * factor;
    }

    // Add the entries begin to end - 1 to the state.
    const auto add = [&](int begin, int end) {
      C limit = most;
#pragma unroll
      for (int u = 0; u < U; ++u) {
        if (u >= begin && u < end) limit = max(limit, scores[u]);
      }
      const C own = State::power(most, limit);
      most = limit;
      sum *= own;
#pragma unroll
      for (int j = 0; j < N; ++j) values[j] *= own;
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
    if (one_row) {
      add(0, U);
    } else {
#pragma unroll
      for (int u = 0; u < U; ++u) {
        while (from + u == rows.end()) finish_row();
        if (from + u < window.count) add(u, u + 1);
      }
    }
  }
  assert(in_range && "index out of bounds");
  while (rows.has_row() && !rows.is_open()) finish_row();
  if (rows.has_row() && starts != nullptr) store_part(rows.row() < 0 ? 0 : 1);
}

}  // namespace

cudaError_t launch(const AttentionPlan& plan, Workspace& workspace, cudaStream_t stream) {
  const void* starts;
  const cudaError_t error = find_starts(plan.args.walk, workspace, stream, starts);
  if (error != cudaSuccess) return error;
  return with_float(plan.args.problem.dtype, [&](auto zero) {
    using T = decltype(zero);
    using State = AttentionState<compute_t<T>>;
    assert(attention_state_bytes(plan.args.problem.dtype) == sizeof(State));
    State* parts = nullptr;
    if (plan.part_bytes > 0) {
      parts = static_cast<State*>(workspace.allocate(plan.part_bytes));
      if (parts == nullptr) return cudaErrorMemoryAllocation;
    }
    const auto kernel = plan.args.problem.is_product() ? attend<T, true> : attend<T, false>;
    const cudaError_t error = launch_kernel(kernel, plan.shape, stream, plan.args, starts, parts);
    if (error != cudaSuccess || parts == nullptr) return error;
    return launch_kernel(add_parts<T, State, AttentionArgs>, plan.finish, stream, plan.args, starts,
                         static_cast<const State*>(parts));
  });
}

}  // namespace gpuopt::spmm
