// The pass over rows of the gradient of attention. Weights are recomputed from the scores and from
// log_sum. What columns need of an entry is two numbers for each head: its weight, and the gradient
// of its score. The pass over columns is two products (spmm) with these as values.
//
//   score_grad[e] = weight[e] * dot(grad[r], value[c] - out[r])
//   left_grad[r]  = the sum of score_grad[e] * factor * right[c], or of score_grad[e]
#include <cassert>

#include "common/launch.cuh"
#include "spmm/device/spmm_attention.cuh"
#include "spmm/paths/spmm_reduce.cuh"
#include "spmm/spmm.h"

namespace gpuopt::spmm {
namespace {

// What a thread keeps of its row.
template <typename T, bool kProduct>
struct RowOperands {
  static constexpr int kCount = kVecSize<T>;
  ScoreOperand<T, kProduct> left;
  T grad[kCount], out[kCount];
  compute_t<T> log_sum = 0;

  __device__ __forceinline__ void load(const AttentionProblem& problem, const HeadPart<T>& part,
                                       int64_t row) {
    left.load(problem, part, problem.left, row, true);
    load_values(static_cast<const T*>(problem.grad.data) + row * problem.grad.row + part.value,
                part.has_value, grad);
    load_values(static_cast<const T*>(problem.out.data) + row * problem.out.row + part.value,
                part.has_value, out);
    log_sum =
        load_if(static_cast<const compute_t<T>*>(problem.log_sum) + row * problem.heads + part.head,
                part.has_head(problem));
  }
  // The thread's share of dot(grad, value - out).
  __device__ __forceinline__ compute_t<T> grad_share(const HeadPart<T>& part,
                                                     const T (&value)[kCount]) const {
    compute_t<T> sum = 0;
    if (!part.has_value) return sum;
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      sum = multiply_add(to_compute(grad[j]), to_compute(value[j]) - to_compute(out[j]), sum);
    }
    return sum;
  }
};

template <typename T, bool kProduct>
__global__ __launch_bounds__(kThreads, kAttentionBlocks<T, true>) void attend_gradient(
    const AttentionArgs args, const void* starts, SumState<compute_t<T>>* parts) {
  using C = compute_t<T>;
  // Sums of a thread: of its features of left, or of its head.
  constexpr int N = kProduct ? kVecSize<T> : 1, U = kAttended;
  const AttentionProblem& problem = args.problem;
  const Matrix& matrix = problem.matrix;
  grid_dependency_wait();
  const Place place(args.walk);
  const Window window(args.walk, starts, place.window);
  const HeadPart<T> part(args, place);
  const bool has_sums = kProduct ? part.has_key : part.leads;
  const uint32_t sums_at = kProduct ? part.key : part.head;

  C sums[N] = {};
  const auto store_part = [&](int which) {
    if (!has_sums) return;
    const int64_t all = kProduct ? problem.key_features : problem.heads;
    SumState<C>* const to = parts + (2 * place.window + which) * all + sums_at;
#pragma unroll
    for (int j = 0; j < N; ++j) to[j] = {sums[j]};
  };
  Cursor rows(matrix, window);
  const auto finish_row = [&] {
    if (rows.row() < 0) {
      store_part(0);
    } else if (has_sums) {
      Vec<T, N> results;
#pragma unroll
      for (int j = 0; j < N; ++j) results.values[j] = from_compute<T>(sums[j]);
      T* const to = static_cast<T*>(problem.left_grad.data) +
                    (window.row + rows.row()) * problem.left_grad.row;
      store_vec(to + sums_at, results);
    }
#pragma unroll
    for (int j = 0; j < N; ++j) sums[j] = C(0);
    rows.advance();
  };

  const bool has_bias = problem.bias != nullptr;
  NextEntries next(matrix, window);
  RowOperands<T, kProduct> own;
  int32_t own_row = -2;  // the row of `own`
  bool in_range = true;
  next.fetch(0, true);
  for (int32_t from = 0; from < window.count; from += U) {
    // Load.
    ScoreOperand<T, kProduct> right[U];
    T dense[U][kVecSize<T>], bias[U];
    int64_t places[U];
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const bool valid = from + u < window.count;
      in_range = in_range && (next.is_known(u) || !valid);
      const int64_t column = next.column(u);
      places[u] = next.place(from, u) * problem.heads + part.head;
      right[u].load(problem, part, problem.right, column, valid);
      load_values(
          static_cast<const T*>(problem.value.data) + column * problem.value.row + part.value,
          valid && part.has_value, dense[u]);
      if (has_bias) {
        bias[u] = load_if(static_cast<const T*>(problem.bias) + places[u],
                          valid && part.has_head(problem));
      }
    }
    next.fetch(from + U, true);

    // Multiply.
    while (from == rows.end()) finish_row();
    const bool one_row = from + U <= min(rows.end(), window.count);
    C scores[U] = {}, grads[U] = {}, log_sums[U];
    const auto multiply = [&](int u, int32_t row) {
      if (own_row != row) own.load(problem, part, window.row + row);
      own_row = row;
      scores[u] = score_share(part, own.left, right[u]);
      grads[u] = own.grad_share(part, dense[u]);
      log_sums[u] = own.log_sum;
    };
    if (one_row) {  // most often
#pragma unroll
      for (int u = 0; u < U; ++u) multiply(u, rows.row());
    } else {
      Cursor ahead = rows;
#pragma unroll
      for (int u = 0; u < U; ++u) {
        if (from + u >= window.count) break;
        while (from + u == ahead.end()) ahead.advance();
        multiply(u, ahead.row());
      }
    }
    if constexpr (kProduct) add_shares(args, scores);
    add_shares(args, grads);

    // Store what columns need, and add to the sums of the row.
    const auto add = [&](int u) {
      const auto factor = static_cast<C>(problem.factor);
      C score = scores[u], slope = C(1);
      if constexpr (kProduct) score *= factor;
      if (has_bias) score += to_compute(bias[u]);
      if constexpr (!kProduct) {
        slope = score > C(0) ? C(1) : factor;
        score *= slope;
      }
      const C weight = exp(score - log_sums[u]), grad = weight * grads[u] * slope;
      if (part.leads) {
        static_cast<T*>(problem.weight)[places[u]] = from_compute<T>(weight);
        static_cast<T*>(problem.score_grad)[places[u]] = from_compute<T>(grad);
      }
      if constexpr (kProduct) {
#pragma unroll
        for (int j = 0; j < N; ++j) {
          sums[j] = multiply_add(grad * factor, to_compute(right[u].values[j]), sums[j]);
        }
      } else {
        sums[0] += grad;
      }
    };
    if (one_row) {
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

}  // namespace

cudaError_t launch(const AttentionGradientPlan& plan, Workspace& workspace, cudaStream_t stream) {
  const void* starts;
  const cudaError_t error = find_starts(plan.args.walk, workspace, stream, starts);
  if (error != cudaSuccess) return error;
  const ReducePlan& sums = plan.sums;
  return with_float(plan.args.problem.dtype, [&](auto zero) {
    using T = decltype(zero);
    using State = SumState<compute_t<T>>;
    State* parts = nullptr;
    if (sums.part_bytes > 0) {
      parts = static_cast<State*>(workspace.allocate(sums.part_bytes));
      if (parts == nullptr) return cudaErrorMemoryAllocation;
    }
    const auto kernel =
        plan.args.problem.is_product() ? attend_gradient<T, true> : attend_gradient<T, false>;
    const cudaError_t error = launch_kernel(kernel, plan.shape, stream, plan.args, starts, parts);
    if (error != cudaSuccess || parts == nullptr) return error;
    return launch_kernel(add_parts<T, State, ReduceArgs>, sums.finish, stream, sums.args, starts,
                         static_cast<const State*>(parts));
  });
}

}  // namespace gpuopt::spmm
