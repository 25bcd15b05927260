// Reductions over the entries of rows: the kernel, and the one that adds the pieces of long rows.
#pragma once

#include <cassert>

#include "common/launch.cuh"
#include "common/warp.cuh"
#include "common/workspace.h"
#include "spmm/device/spmm_access.cuh"
#include "spmm/device/spmm_states.cuh"
#include "spmm/device/spmm_walk.cuh"
#include "spmm/spmm.h"

namespace gpuopt::spmm {

// Entries that a thread loads before it uses the first. Their loads are in flight together.
template <typename State, Access kAccess>
constexpr int kUnroll = kAccess == Access::kSpread || sizeof(State) > 8 ? 4 : 8;

// Blocks of a multiprocessor, which limit the registers of a thread.
template <typename State>
constexpr int kBlocks = sizeof(State) > 4 ? 4 : 8;

// The columns and values of entries.
template <typename C, int N, int kWeights>
struct Entries {
  uint32_t column[N];
  uint32_t valid = 0;  // a bit for each
  C weight[N][kWeights];
};

// Writes the result of a row, whose first entry is `first`.
template <typename T, typename State, typename F>
__device__ __forceinline__ void write_row(const ReduceProblem& problem, int64_t batch, int64_t row,
                                          int64_t first, int64_t entries, const F& features,
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
            const bool rounded_up = results[j] < 0 && quotient * static_cast<C>(entries) != results[j];
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
      const int64_t arg = states[j].entry == State::kNone ? -1 : first + states[j].entry;
      if (problem.matrix.is_long) {
        static_cast<int64_t*>(problem.arg)[to + features.at(j)] = arg;
      } else {
        static_cast<int32_t*>(problem.arg)[to + features.at(j)] = static_cast<int32_t>(arg);
      }
    }
  }
}

template <typename T, typename State, Access kAccess, bool kSelects>
__global__ __launch_bounds__(kThreads, kBlocks<State>) void reduce_rows(const ReduceArgs args,
                                                                        const void* starts,
                                                                        State* parts) {
  using C = compute_t<T>;
  using F = Features<T, kAccess>;
  constexpr int N = F::kCount, U = kUnroll<State, kAccess>;
  constexpr int kWeights = kAccess == Access::kVector ? 1 : N;
  const ReduceProblem& problem = args.problem;
  const Matrix& matrix = problem.matrix;
  const Place place = place_of(args.walk, starts);
  const F features(args.walk, place.tile, place.lane, problem.features);
  const T* dense = static_cast<const T*>(problem.dense.data) + place.batch * problem.dense.batch;

  int64_t head[kWeights];
#pragma unroll
  for (int j = 0; j < kWeights; ++j) {
    head[j] = problem.heads == 1 ? 0 : features.at(j) / (problem.features / problem.heads);
  }
  bool in_range = true;
  // The columns and values of the entries from number `from` of the group on.
  const auto fetch = [&](int32_t from) {
    Entries<C, U, kWeights> found;
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const int64_t entry = place.begin + from + u;
      const bool valid = from + u < place.count;
      found.column[u] = matrix.index == nullptr
                            ? static_cast<uint32_t>(entry)
                            : load_word<uint32_t>(low_word(matrix, matrix.index, entry), valid);
      if (problem.value != nullptr) {
        const int64_t at = matrix.entry == nullptr
                               ? entry
                               : load_word<uint32_t>(low_word(matrix, matrix.entry, entry), valid);
        const T* values = static_cast<const T*>(problem.value) + at * problem.heads;
#pragma unroll
        for (int j = 0; j < kWeights; ++j) {
          const bool reads = valid && features.has(j);
          found.weight[u][j] = to_compute(load_if(values + (reads ? head[j] : 0), reads));
        }
      }
      const bool known = !valid || matrix.index == nullptr || found.column[u] < matrix.columns;
      in_range = in_range && known;
      found.valid |= static_cast<uint32_t>(valid && known) << u;
    }
    return found;
  };

  State states[N];
  Cursor rows(matrix, place);
  const auto finish_row = [&] {
    write_row<T>(problem, place.batch, rows.row(), place.begin + rows.first(),
                 rows.end() - rows.first(), features, states);
#pragma unroll
    for (int j = 0; j < N; ++j) states[j] = State();
    rows.advance();
  };
  Entries<C, U, kWeights> next = fetch(0);
  for (int32_t from = 0; from < place.count; from += U) {
    const Entries<C, U, kWeights> now = next;
    T values[U][N];
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const int64_t column =
          matrix.index == nullptr ? place.begin + from + u : int64_t{now.column[u]};
      features.load(dense + column * problem.dense.row, now.valid >> u & 1, values[u]);
    }
    next = fetch(from + U);
#pragma unroll
    for (int u = 0; u < U; ++u) {
      while (from + u == rows.end()) finish_row();
      if (!(now.valid >> u & 1)) continue;
      const auto number = static_cast<uint32_t>(from + u) - static_cast<uint32_t>(rows.first());
#pragma unroll
      for (int j = 0; j < N; ++j) {
        C x = to_compute(values[u][j]);
        if (problem.value != nullptr) x *= now.weight[u][kWeights == 1 ? 0 : j];
        if constexpr (kSelects) {
          if (!features.has(j)) continue;
          const int64_t at =
              (place.batch * matrix.columns + now.column[u]) * problem.features + features.at(j);
          const int64_t entry = place.begin + from + u;
          const int64_t own = matrix.entry == nullptr
                                  ? entry
                                  : number_at(matrix.entry, matrix.is_long, entry);
          if (number_at(problem.selected, matrix.is_long, at) != own) continue;
        }
        states[j].add(x, number);
      }
    }
  }
  assert(in_range && "index out of bounds");

  while (rows.has_row()) finish_row();
  if (place.slot >= 0) {
    const int64_t slot = int64_t{place.batch} * 2 * args.walk.pieces + place.slot;
    State* to = parts + slot * problem.features;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if (features.has(j)) to[features.at(j)] = states[j];
    }
  }
}

// A block for each piece of the entries adds the pieces of the row that begins in it and is cut.
// There is at most one.
template <typename T, typename State>
__global__ __launch_bounds__(kThreads) void add_pieces(const ReduceArgs args, const State* parts) {
  const ReduceProblem& problem = args.problem;
  const Walk& walk = args.walk;
  const uint32_t batch = blockIdx.x / walk.pieces;
  const int64_t window = blockIdx.x % walk.pieces, begin = window * walk.piece;
  const int64_t row = row_at(walk.matrix, min(begin + walk.piece, walk.matrix.entries) - 1, 0);
  if (row < 0 || row >= walk.matrix.rows) return;
  const int64_t first = start_of(walk.matrix, row), end = start_of(walk.matrix, row + 1);
  if (end - first <= walk.piece || first < begin) return;
  const int64_t pieces = (end - 1) / walk.piece - window + 1;
  parts += int64_t{batch} * 2 * walk.pieces * problem.features;

  // Threads side by side along the features, in slices that share the pieces.
  __shared__ State shared[kThreads];
  uint32_t lanes = 1;
  while (lanes < kWarp && lanes < problem.features) lanes *= 2;
  const uint32_t slices = kThreads / lanes, slice = threadIdx.x / lanes;
  for (int64_t tile = 0; tile < problem.features; tile += lanes) {
    Walk single = walk;
    single.lanes = lanes;
    Features<T, Access::kSingle> features(single, static_cast<uint32_t>(tile / lanes),
                                          threadIdx.x % lanes, problem.features);
    State state[1];
    if (features.has(0)) {
      for (int64_t piece = slice; piece < pieces; piece += slices) {
        const bool begins_inside = piece == 0 && first > begin;
        const int64_t slot = 2 * (window + piece) + begins_inside;
        state[0].merge(parts[slot * problem.features + features.first]);
      }
    }
    __syncthreads();
    shared[threadIdx.x] = state[0];
    for (uint32_t half = slices / 2; half > 0; half /= 2) {
      __syncthreads();
      if (slice < half) shared[threadIdx.x].merge(shared[threadIdx.x + half * lanes]);
    }
    if (slice == 0) {
      state[0] = shared[threadIdx.x];
      write_row<T>(problem, batch, row, first, end - first, features, state);
    }
  }
}

template <typename T, typename State, Access kAccess, bool kSelects = false>
cudaError_t run(const ReducePlan& plan, Workspace& workspace, cudaStream_t stream) {
  void* const starts = find_starts(plan.args.walk, workspace, stream);
  State* parts = nullptr;
  if (starts == nullptr) return cudaErrorMemoryAllocation;
  if (plan.part_bytes > 0) {
    parts = static_cast<State*>(workspace.allocate(plan.part_bytes));
    if (parts == nullptr) return cudaErrorMemoryAllocation;
  }
  cudaError_t error = launch_kernel(reduce_rows<T, State, kAccess, kSelects>, plan.shape, stream,
                                    plan.args, static_cast<const void*>(starts), parts);
  if (error != cudaSuccess || parts == nullptr) return error;
  return launch_kernel(add_pieces<T, State>, plan.finish, stream, plan.args,
                       static_cast<const State*>(parts));
}

}  // namespace gpuopt::spmm
