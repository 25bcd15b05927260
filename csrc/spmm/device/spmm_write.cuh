// Results of rows.
#pragma once

#include <type_traits>

#include "spmm/device/spmm_walk.cuh"

namespace gpuopt::spmm {

// Writes the result of a row.
template <typename T, typename State, typename F>
__device__ __forceinline__ void write_row(const ReduceProblem& problem, int64_t batch, int64_t row,
                                          int64_t entries, const F& features,
                                          const State (&states)[F::kCount]) {
  using C = compute_t<T>;
  constexpr int N = F::kCount;
  const int64_t at = row * problem.out.row + batch * problem.out.batch;
  if constexpr (requires { states[0].most; }) {
    features.store(static_cast<State*>(problem.out.data) + at, states);
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
      features.store(static_cast<C*>(problem.out.data) + at, results);
    } else {
      T rounded[N];
#pragma unroll
      for (int j = 0; j < N; ++j) rounded[j] = from_compute<T>(results[j]);
      features.store(static_cast<T*>(problem.out.data) + at, rounded);
    }
  }
  if constexpr (requires { states[0].entry; }) {
    if (problem.arg == nullptr) return;
    const int64_t to = (batch * problem.matrix.rows + row) * problem.features;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if (!features.has(j)) continue;
      int64_t arg = states[j].entry;
      if (arg >= 0 && problem.matrix.entry != nullptr) {
        arg = *low_word(problem.matrix, problem.matrix.entry, arg);
      }
      if (problem.matrix.is_long) {
        static_cast<int64_t*>(problem.arg)[to + features.at(j)] = arg;
      } else {
        static_cast<int32_t*>(problem.arg)[to + features.at(j)] = static_cast<int32_t>(arg);
      }
    }
  }
}

}  // namespace gpuopt::spmm
