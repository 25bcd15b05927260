// The forward kernel. Each thread goes through the positions one after another, with the states of
// a part of a channel in registers. There is no parallel scan: the channels and states are enough
// to fill the device.
#pragma once

#include "common/launch.cuh"
#include "scan/selective/selective_tile.cuh"

namespace gpuopt::selective {

struct ForwardArgs {
  Problem problem;
  Plan plan;
  // If not null, only the states before every `spacing`-th position are written, a power of 2:
  // [batch, ceil(length / spacing), channels, states]
  void* checkpoints = nullptr;
  int spacing = 1;
};

template <int M>
constexpr int kRun = run_values(M);

template <typename C>
size_t forward_shared_bytes(const Plan& plan) {
  const int pad = 16 / sizeof(C);
  const int rows = plan.channels() * (plan.tile + pad), matrix = plan.tile * (plan.states() + pad);
  return 2 * sizeof(C) * static_cast<size_t>(rows + matrix + plan.channels());
}

template <typename T, int M, bool kConstant, bool kCheckpoints>
__global__ __launch_bounds__(kThreads,
                             sizeof(compute_t<T>) == 8 ? 2
                             : M == 8 || kConstant
                                 ? 3
                                 : 4) void scan_forward(const __grid_constant__ ForwardArgs args) {
  using C = compute_t<T>;
  constexpr int R = kRun<M>, kPad = 16 / static_cast<int>(sizeof(C));
  constexpr int P = sizeof(C) == 4 ? kGroup : M == 8 ? 2 : 4, kHalf = P / 2;
  const Problem& problem = args.problem;
  const Plan& plan = args.plan;
  const int tile = plan.tile, lanes = plan.lanes, pitch = tile + kPad;
  const int matrix_pitch = plan.states() + kPad;

  extern __shared__ uint4 selective_memory[];
  C* const row_dt = reinterpret_cast<C*>(selective_memory);  // later y
  C* const row_dtu = row_dt + plan.channels() * pitch;
  C* const matrix_B = row_dtu + plan.channels() * pitch;
  C* const matrix_C = matrix_B + tile * matrix_pitch;
  C* const bias = matrix_C + tile * matrix_pitch;  // of a channel
  C* const skip = bias + plan.channels();          // D of a channel

  // This thread's channel and states, and the run that it moves.
  const Block block(problem, plan);
  const TileRun<R> own_run(problem, plan);
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int row = static_cast<int>(threadIdx.x) / lanes;
  const int64_t channel = block.first + row, length = problem.length;
  const bool own = channel < block.end;
  const int states = static_cast<int>(problem.states);
  const int valid = own ? min(max(states - lane * M, 0), M) : 0;
  const int64_t state_row = channel * states + lane * M;

  Vec<C, M> decay = load_states<C, M>(static_cast<const C*>(problem.A) + state_row, valid);
#pragma unroll
  for (int i = 0; i < M; ++i) decay.values[i] *= kLog2E<C>;
  Vec<C, M> constant_B = {}, constant_C = {}, h = {};
  if constexpr (kConstant) {
    if (problem.B.constant) constant_B = load_constant<C, M>(problem.B, channel, lane * M, valid);
    if (problem.C.constant) constant_C = load_constant<C, M>(problem.C, channel, lane * M, valid);
  }
  load_channels(bias, problem.delta_bias, block.first, block.end, plan.channels());
  load_channels(skip, problem.D, block.first, block.end, plan.channels());
  __syncthreads();

  const auto valid_at = [&](int64_t position) {
    return own_run.valid(block.end - block.first, length - position);
  };
  const auto load = [&](const Sequence& sequence, int64_t position) {
    return load_run<T, R>(sequence, own_run, block.batch, block.first, position,
                          valid_at(position));
  };

  const bool has_z = problem.z.data != nullptr && !kCheckpoints;
  Run<T, R> next_u = load(problem.u, 0), next_delta = load(problem.delta, 0);
  // Small problems have too few warps to hide the latency of these loads.
  constexpr bool kAhead = M == 1;
  MatrixTile<C> next_B, next_C;
  const bool varying_B = !kConstant || !problem.B.constant;
  const bool varying_C = !kCheckpoints && (!kConstant || !problem.C.constant);
  const auto load_matrices_ahead = [&](int64_t position) {
    if constexpr (kAhead) {
      const int first = recomputed(static_cast<int>(threadIdx.x));
      if (varying_B) next_B.load(problem.B, problem, plan, block, position, first);
      if (varying_C) next_C.load(problem.C, problem, plan, block, position, first);
    }
  };
  load_matrices_ahead(0);

  for (int64_t begin = 0; begin < length; begin += tile) {
    // ------------------------------------------------------------ Load the tile
    const Run<T, R> u = next_u, delta = next_delta;
    const int count = valid_at(begin);
    if (own_run.used) {
#pragma unroll
      for (int i = 0; i < R; ++i) {
        C dt = delta[i] + bias[own_run.row(i)];
        if (problem.softplus) dt = softplus(dt);
        if (i >= count) dt = 0;  // leaves the state unchanged
        const int to = own_run.index(i, pitch);
        row_dt[to] = dt;
        row_dtu[to] = i < count ? dt * u[i] : C{0};
      }
    }
    if (varying_B) {
      load_matrix(matrix_B, problem.B, problem, plan, block, begin, kAhead ? &next_B : nullptr);
    }
    if (varying_C) {
      load_matrix(matrix_C, problem.C, problem, plan, block, begin, kAhead ? &next_C : nullptr);
    }
    Run<T, R> z = {};
    if (has_z) z = load(problem.z, begin);
    if (begin + tile < length) {
      next_u = load(problem.u, begin + tile);
      next_delta = load(problem.delta, begin + tile);
      load_matrices_ahead(begin + tile);
    }
    __syncthreads();

    // ------------------------------------------------------------ Go through the positions
    for (int first = 0; first < tile; first += P) {
      if (kCheckpoints && (first & (args.spacing - 1)) == 0 && begin + first < length) {
        const int64_t number = (begin + first) / args.spacing;
        const int64_t stored = (length + args.spacing - 1) / args.spacing;
        store_states(static_cast<C*>(args.checkpoints) +
                         (block.batch * stored + number) * problem.channels * states + state_row,
                     h, valid);
      }
      C y[P];
#pragma unroll
      for (int half = 0; half < P; half += kHalf) {
        const int from = row * pitch + first + half;
        const auto dt = load_row<kHalf>(row_dt + from), dtu = load_row<kHalf>(row_dtu + from);
#pragma unroll
        for (int p = 0; p < kHalf; ++p) {
          const int position = first + half + p;
          auto B = constant_B, c = constant_C;
          if (varying_B) {
            B = load_shared_states<M>(matrix_B + position * matrix_pitch + lane * M);
          }
          if (varying_C) {
            c = load_shared_states<M>(matrix_C + position * matrix_pitch + lane * M);
          }
          C sum = 0;
#pragma unroll
          for (int i = 0; i < M; ++i) {
            const C a = exp2_of(dt[p] * decay.values[i]);
            h.values[i] = multiply_add(a, h.values[i], dtu[p] * B.values[i]);
            if (!kCheckpoints) sum = multiply_add(c.values[i], h.values[i], sum);
          }
          y[half + p] = sum;
        }
      }
      if constexpr (!kCheckpoints) {
        sum_over_lanes(y, 1, lanes);
        __syncwarp();  // all lanes have read this group of row_dt
        const int to = row * pitch + first + first_sum<P>(lane, lanes);
        const int sums = max(P / lanes, 1);
        if (lane < P) {
#pragma unroll
          for (int k = 0; k < P / 2; ++k) {
            if (k < sums) row_dt[to + k] = y[k];
          }
        }
      }
    }
    __syncthreads();

    // ------------------------------------------------------------ Store the results
    if constexpr (!kCheckpoints) {
      Run<T, R> out;
#pragma unroll
      for (int i = 0; i < R; ++i) {
        C value = 0;
        if (own_run.used) {
          value = multiply_add(skip[own_run.row(i)], u[i], row_dt[own_run.index(i, pitch)]);
        }
        if (has_z) value *= z[i] * sigmoid(z[i]);
        out.set(i, value);
      }
      store_run(out, problem.out, own_run, block.batch, block.first, begin, count);
    }
  }
  if (!kCheckpoints && problem.last_state != nullptr) {
    store_states(
        static_cast<C*>(problem.last_state) + block.batch * problem.channels * states + state_row,
        h, valid);
  }
}

// Constant B and C of f64 with 8 states per lane would spill registers.
template <typename T, bool kConstant>
constexpr int kMostPerLane = kConstant && sizeof(T) == 8 ? 4 : 8;

// Calls f with the number of states per lane as a constant.
template <int kMost, typename F>
cudaError_t dispatch_per_lane(int per_lane, F&& f) {
  switch (per_lane) {
    case 1:
      return f(std::integral_constant<int, 1>{});
    case 4:
      return f(std::integral_constant<int, 4>{});
    default:
      if constexpr (kMost == 8) return f(std::integral_constant<int, 8>{});
      return cudaErrorInvalidValue;
  }
}

// Launches a kernel of one block per entry of the plan.
template <typename Args>
cudaError_t launch_blocks(void (*kernel)(Args), const Args& args, size_t shared_bytes,
                          cudaStream_t stream) {
  if (shared_bytes > (48 << 10)) {
    const cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                                   cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                   static_cast<int>(shared_bytes));
    if (error != cudaSuccess) return error;
  }
  return launch_kernel(kernel, {static_cast<unsigned>(args.plan.blocks), kThreads, shared_bytes},
                       stream, args);
}

template <typename T, bool kConstant, bool kCheckpoints>
cudaError_t launch_forward(const ForwardArgs& args, cudaStream_t stream) {
  return dispatch_per_lane<kMostPerLane<T, kConstant>>(args.plan.per_lane, [&](auto per_lane) {
    return launch_blocks(scan_forward<T, per_lane(), kConstant, kCheckpoints>, args,
                         forward_shared_bytes<compute_t<T>>(args.plan), stream);
  });
}

// Constant B and C are rare, so there are kernels for f32 and f64 only.
inline bool has_constant(const Problem& problem) {
  return problem.B.constant || problem.C.constant;
}

// Writes the states before every `spacing`-th position.
template <typename T>
cudaError_t write_checkpoints(const Problem& problem, const Device& device, void* checkpoints,
                              int spacing, cudaStream_t stream) {
  const ForwardArgs args{problem, plan_forward(problem, device), checkpoints, spacing};
  if constexpr (sizeof(T) >= 4) {
    if (has_constant(problem)) return launch_forward<T, true, true>(args, stream);
  }
  return has_constant(problem) ? cudaErrorInvalidValue
                               : launch_forward<T, false, true>(args, stream);
}

template <typename T>
cudaError_t run_forward(const Problem& problem, const Device& device, cudaStream_t stream) {
  const ForwardArgs args{problem, plan_forward(problem, device)};
  if constexpr (sizeof(T) >= 4) {
    if (has_constant(problem)) return launch_forward<T, true, false>(args, stream);
  }
  return has_constant(problem) ? cudaErrorInvalidValue
                               : launch_forward<T, false, false>(args, stream);
}

}  // namespace gpuopt::selective
