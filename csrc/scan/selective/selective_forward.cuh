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

// Sizes of arrays in shared memory.
template <typename C, typename Layout>
struct ForwardShared {
  static constexpr int kPad = 16 / static_cast<int>(sizeof(C));
  static constexpr int kPitch = Layout::kTile + kPad, kMatrixPitch = Layout::kPadded + kPad;
  static constexpr int kRow = Layout::kChannels * kPitch, kMatrix = Layout::kTile * kMatrixPitch;
  static constexpr size_t kBytes = 2 * sizeof(C) * (kRow + kMatrix + Layout::kChannels);
};

template <typename T, typename Layout, bool kConstant, bool kCheckpoints>
__global__ __launch_bounds__(kThreads,
                             sizeof(compute_t<T>) == 8 ? 2
                             : Layout::kStates == 8 || kConstant
                                 ? 3
                                 : 4) void scan_forward(const __grid_constant__ ForwardArgs args) {
  using C = compute_t<T>;
  using Shared = ForwardShared<C, Layout>;
  constexpr int M = Layout::kStates, R = Layout::kRun, kLanes = Layout::kLanes;
  constexpr int kTile = Layout::kTile, kPitch = Shared::kPitch, kMatrixPitch = Shared::kMatrixPitch;
  constexpr int P = sizeof(C) == 4 ? kGroup : M == 8 ? 2 : 4, kHalf = P / 2;
  const Problem& problem = args.problem;

  extern __shared__ uint4 selective_memory[];
  C* const row_dt = reinterpret_cast<C*>(selective_memory);  // later y
  C* const row_dtu = row_dt + Shared::kRow;
  C* const matrix_B = row_dtu + Shared::kRow;
  C* const matrix_C = matrix_B + Shared::kMatrix;
  C* const bias = matrix_C + Shared::kMatrix;  // of a channel
  C* const skip = bias + Layout::kChannels;    // D of a channel

  launch_dependents();
  grid_dependency_wait();
  // This thread's channel and states, and the run that it moves.
  const Block block(problem, args.plan, Layout::kChannels);
  const TileRun<Layout> own_run(problem);
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int row = static_cast<int>(threadIdx.x) / kLanes;
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
  load_channels(bias, problem.delta_bias, block.first, block.end, Layout::kChannels);
  load_channels(skip, problem.D, block.first, block.end, Layout::kChannels);
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
  MatrixTile<C, Layout> next_B, next_C;
  const MatrixTile<C, Layout>*const ahead_B = kAhead ? &next_B : nullptr, *const ahead_C =
                                                                              kAhead ? &next_C
                                                                                     : nullptr;
  const bool varying_B = !kConstant || !problem.B.constant;
  const bool varying_C = !kCheckpoints && (!kConstant || !problem.C.constant);
  const auto load_matrices_ahead = [&](int64_t position) {
    if constexpr (kAhead) {
      if (varying_B) next_B.load(problem.B, problem, block, position, 0);
      if (varying_C) next_C.load(problem.C, problem, block, position, 0);
    }
  };
  load_matrices_ahead(0);

  C* checkpoint = static_cast<C*>(args.checkpoints);
  if (kCheckpoints) {
    const int64_t stored = (length + args.spacing - 1) / args.spacing;
    checkpoint += block.batch * stored * problem.channels * states + state_row;
  }
  for (int64_t begin = 0; begin < length; begin += kTile) {
    // ------------------------------------------------------------ Load the tile
    const Run<T, R> u = next_u, delta = next_delta;
    const int count = valid_at(begin);
    if (own_run.used) {
#pragma unroll
      for (int i = 0; i < R; ++i) {
        C dt = delta[i] + bias[own_run.row(i)];
        if (problem.softplus) dt = softplus(dt);
        if (i >= count) dt = 0;  // leaves the state unchanged
        const int to = own_run.index(i, kPitch);
        row_dt[to] = dt;
        row_dtu[to] = i < count ? dt * u[i] : C{0};
      }
    }
    if (varying_B) load_matrix(matrix_B, problem.B, problem, block, begin, ahead_B);
    if (varying_C) load_matrix(matrix_C, problem.C, problem, block, begin, ahead_C);
    Run<T, R> z = {};
    if (has_z) z = load(problem.z, begin);
    if (begin + kTile < length) {
      next_u = load(problem.u, begin + kTile);
      next_delta = load(problem.delta, begin + kTile);
      load_matrices_ahead(begin + kTile);
    }
    __syncthreads();

    // ------------------------------------------------------------ Go through the positions
    for (int first = 0; first < kTile; first += P) {
      if (kCheckpoints && (first & (args.spacing - 1)) == 0 && begin + first < length) {
        store_states(checkpoint, h, valid);
        checkpoint += problem.channels * states;
      }
      C y[P];
#pragma unroll
      for (int half = 0; half < P; half += kHalf) {
        const int from = row * kPitch + first + half;
        const auto dt = load_row<kHalf>(row_dt + from), dtu = load_row<kHalf>(row_dtu + from);
#pragma unroll
        for (int p = 0; p < kHalf; ++p) {
          const int position = first + half + p;
          auto B = constant_B, c = constant_C;
          if (varying_B) {
            B = load_shared_states<M>(matrix_B + position * kMatrixPitch + lane * M);
          }
          if (varying_C) {
            c = load_shared_states<M>(matrix_C + position * kMatrixPitch + lane * M);
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
        sum_over_lanes<1, kLanes>(y);
        __syncwarp();  // all lanes have read this group of row_dt
        const int to = row * kPitch + first + first_sum<P, kLanes>(lane);
        if (lane < P) {
#pragma unroll
          for (int k = 0; k < kSums<P, kLanes>; ++k) row_dt[to + k] = y[k];
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
          value = multiply_add(skip[own_run.row(i)], u[i], row_dt[own_run.index(i, kPitch)]);
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

// Calls f with the Layout of a plan.
template <typename T, bool kConstant, bool kBackward, typename F>
cudaError_t dispatch_layout(const Plan& plan, F&& f) {
  const int code = plan.per_lane * 100 + plan.lanes;
  if constexpr (sizeof(T) < 8 && !kConstant) {
    switch (code) {
      case 102:
        return f(Layout<1, 2, kBackward>{});
      case 108:
        return f(Layout<1, 8, kBackward>{});
      case 116:
        return f(Layout<1, 16, kBackward>{});
      case 132:
        return f(Layout<1, 32, kBackward>{});
      case 402:
        return f(Layout<4, 2, kBackward>{});
      case 408:
        return f(Layout<4, 8, kBackward>{});
      case 416:
        return f(Layout<4, 16, kBackward>{});
    }
  }
  if constexpr (sizeof(T) < 8 || !kConstant) {  // the others would spill registers
    if (code == 832) return f(Layout<8, 32, kBackward>{});
  }
  if (code == 404) return f(Layout<4, 4, kBackward>{});
  return code == 432 ? f(Layout<4, 32, kBackward>{}) : cudaErrorInvalidValue;
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
  const LaunchShape shape{static_cast<unsigned>(args.plan.blocks), kThreads, shared_bytes, true};
  return launch_kernel(kernel, shape, stream, args);
}

template <typename T, bool kConstant, bool kCheckpoints>
cudaError_t launch_forward(const ForwardArgs& args, cudaStream_t stream) {
  return dispatch_layout<T, kConstant, false>(args.plan, [&](auto layout) {
    using Layout = decltype(layout);
    return launch_blocks(scan_forward<T, Layout, kConstant, kCheckpoints>, args,
                         ForwardShared<compute_t<T>, Layout>::kBytes, stream);
  });
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
