// The pass over rows of the gradient of attention. Weights are recomputed from the scores and from
// log_sum. What columns need of an entry is two numbers for each head: its weight, and the gradient
// of its score. The pass over columns is two products (spmm) with these as values.
//
//   score_grad[e] = weight[e] * dot(grad[r], value[c] - out[r])
//   left_grad[r]  = the sum of score_grad[e] * factor * right[c], or of score_grad[e]
#include <cassert>

#include "common/launch.cuh"
#include "graph_attention/graph_attention.h"
#include "graph_attention/graph_attention_heads.cuh"
#include "rows/device/rows_block_parts.cuh"
#include "rows/device/rows_states.cuh"
#include "rows/paths/rows_parts.cuh"

namespace gpuopt::graph_attention {
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
__global__ __launch_bounds__(kThreads, kAttentionBlocks<T, kProduct, true>) void attend_gradient(
    const AttentionArgs args, void* starts, SumState<compute_t<T>>* parts) {
  using C = compute_t<T>;
  using State = SumState<C>;
  // Sums of a thread: of its features of left, or of its head.
  constexpr int N = kProduct ? kVecSize<T> : 1, U = kAttended;
  const AttentionProblem& problem = args.problem;
  const Matrix& matrix = problem.matrix;
  grid_dependency_wait();
  const Place place(args.walk);
  const Window window(args.walk, place.window, args.walk.lanes);
  if (starts != nullptr && threadIdx.x == 0 && place.tile == 0) {
    store_number(starts, matrix.is_long, blockIdx.x, window.row);
  }
  const HeadPart<T> part(args, place);
  const bool has_sums = kProduct ? part.has_key : part.leads;
  const uint32_t sums_at = kProduct ? part.key : part.head;

  State sums[N];
  __shared__ State heads[N][kThreads];
  __shared__ bool closes[kThreads];
  BlockParts<State, N> shared{heads, closes};
  Cursor rows(matrix, window);
  const auto write = [&](const State(&all)[N]) {
    if (!has_sums) return;
    Vec<T, N> results;
#pragma unroll
    for (int j = 0; j < N; ++j) results.values[j] = from_compute<T>(all[j].sum);
    T* const to =
        static_cast<T*>(problem.left_grad.data) + (window.row + rows.row()) * problem.left_grad.row;
    store_vec(to + sums_at, results);
  };
  const auto finish_row = [&] {
    if (rows.row() < 0) {
      shared.keep_head(args.walk, sums, true);
    } else {
      write(sums);
    }
#pragma unroll
    for (int j = 0; j < N; ++j) sums[j] = State();
    rows.advance();
  };

  const bool has_bias = problem.bias != nullptr;
  NextEntries next(matrix, window);
  RowOperands<T, kProduct> row_operands;
  int32_t loaded_row = -2;  // the row of `row_operands`
  const bool has_head = rows.row() < 0;
  next.fetch(0, true);
  for (int32_t from = 0; __any_sync(0xffffffffu, from < window.count); from += U) {
    // Load.
    ScoreOperand<T, kProduct> right[U];
    T dense[U][kVecSize<T>], bias[U];
    int64_t places[U];
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const bool valid = from + u < window.count;
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
    Cursor ahead = rows;
    C scores[U] = {}, grads[U] = {}, log_sums[U];
#pragma unroll
    for (int u = 0; u < U; ++u) {
      if (from + u >= window.count) break;
      while (from + u == ahead.end()) ahead.advance();
      if (loaded_row != ahead.row()) row_operands.load(problem, part, window.row + ahead.row());
      loaded_row = ahead.row();
      scores[u] = score_share(part, row_operands.left, right[u]);
      grads[u] = row_operands.grad_share(part, dense[u]);
      log_sums[u] = row_operands.log_sum;
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
          sums[j].sum = multiply_add(grad * factor, to_compute(right[u].values[j]), sums[j].sum);
        }
      } else {
        sums[0].sum += grad;
      }
    };
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
  assert(next.in_range() && "index out of bounds");
  while (rows.has_row() && !rows.is_open()) finish_row();
  finish_block(shared, args.walk, rows, has_head, sums, write,
               [&](int which, const State(&all)[N]) {
                 if (parts == nullptr || !has_sums) return;  // as in reduce_rows()
                 const int64_t width = kProduct ? problem.key_features : problem.heads;
                 const int64_t block = blockIdx.x % args.walk.blocks;
                 State* const to = parts + (2 * block + which) * width + sums_at;
#pragma unroll
                 for (int j = 0; j < N; ++j) to[j] = all[j];
               });
}

}  // namespace

cudaError_t launch(const AttentionGradientPlan& plan, Workspace& workspace, cudaStream_t stream) {
  return with_float(plan.args.problem.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto kernel =
        plan.args.problem.is_product() ? attend_gradient<T, true> : attend_gradient<T, false>;
    return launch_with_parts<T>(kernel, plan.args, plan.shape, plan.sums, workspace, stream);
  });
}

}  // namespace gpuopt::graph_attention
