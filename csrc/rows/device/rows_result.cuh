// Where the result of a row is, and how it is written.
#pragma once

#include "common/types.cuh"
#include "rows/device/rows_walk.cuh"

namespace gpuopt::rows {

// The bytes of an element of the result: T, the compute type of T, or a state.
template <typename T, typename State>
__device__ __forceinline__ int64_t bytes_of_result(const ReduceProblem& problem) {
  if constexpr (requires(State state) { state.most; }) return sizeof(State);
  return problem.wide_out ? sizeof(compute_t<T>) : sizeof(T);
}

// Where a row of the result is.
template <typename T, typename State>
__device__ __forceinline__ char* result_at(const ReduceProblem& problem, int64_t batch,
                                           int64_t row) {
  return static_cast<char*>(problem.out.data) +
         (row * problem.out.row + batch * problem.out.batch) * bytes_of_result<T, State>(problem);
}

// Writes the result of a row at `to`.
template <typename T, typename State, typename F>
__device__ __forceinline__ void write_row(const ReduceProblem& problem, void* to, int64_t batch,
                                          int64_t row, int64_t entries, const F& features,
                                          const State (&states)[F::kCount]) {
  using C = compute_t<T>;
  constexpr int N = F::kCount;
  if constexpr (requires { states[0].most; }) {
    features.store(static_cast<State*>(to), states);
  } else {
    C results[N];
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if constexpr (requires { states[j].sum; }) {
        results[j] = states[j].sum;
        if (problem.reduce == Reduce::kMean && entries > 0) {
          if constexpr (std::is_integral_v<C>) {
            const C quotient = results[j] / static_cast<C>(entries);
            const bool rounded_up =
                results[j] < 0 && quotient * static_cast<C>(entries) != results[j];
            results[j] = quotient - C(rounded_up);
          } else {
            results[j] /= static_cast<C>(entries);
          }
        }
      } else if constexpr (requires { states[j].product; }) {
        results[j] = states[j].product;
      } else {
        results[j] = states[j].value;
      }
      if (entries <= 0) results[j] = static_cast<C>(problem.empty);
    }
    if (problem.wide_out) {
      features.store(static_cast<C*>(to), results);
    } else {
      T rounded[N];
#pragma unroll
      for (int j = 0; j < N; ++j) rounded[j] = from_compute<T>(results[j]);
      features.store(static_cast<T*>(to), rounded);
    }
  }
  if constexpr (requires { states[0].entry; }) {
    if (problem.arg == nullptr) return;
    const int64_t first = (batch * problem.matrix.rows + row) * problem.features;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if (!features.has(j)) continue;
      int64_t arg = states[j].entry;
      if (arg >= 0 && problem.matrix.entry != nullptr) {
        // A part that nobody wrote, of an operand that is no valid matrix, holds any number.
        arg = *low_word(problem.matrix, problem.matrix.entry, min(arg, problem.matrix.entries - 1));
      }
      if (problem.matrix.is_long) {
        static_cast<int64_t*>(problem.arg)[first + features.at(j)] = arg;
      } else {
        static_cast<int32_t*>(problem.arg)[first + features.at(j)] = static_cast<int32_t>(arg);
      }
    }
  }
}

// Writes it where it is in the problem.
template <typename T, typename State, typename F>
__device__ __forceinline__ void write_row(const ReduceProblem& problem, int64_t batch, int64_t row,
                                          int64_t entries, const F& features,
                                          const State (&states)[F::kCount]) {
  write_row<T>(problem, result_at<T, State>(problem, batch, row), batch, row, entries, features,
               states);
}

}  // namespace gpuopt::rows
