// The forward kernel. Each thread goes through the positions one after another, with the states of
// a part of a channel in registers. There is no parallel scan: batch, channels, states and segments
// of the length are enough to fill the device.
#pragma once

#include "common/launch.cuh"
#include "selective_scan/device/selective_scan_tile.cuh"

namespace gpuopt::selective {

template <typename T, typename Layout, bool kConstant, Pass kPass>
__global__ __launch_bounds__(
    kThreads,
    blocks_per_sm(Layout::kStates, Layout::kLanes, false, sizeof(compute_t<T>) == 8,
                  kConstant)) void scan_forward(const __grid_constant__ ForwardArgs args) {
  using C = compute_t<T>;
  using Shared = ForwardShared<C, Layout>;
  constexpr int M = Layout::kStates, R = Layout::kRun, kLanes = Layout::kLanes;
  constexpr int kTile = Layout::kTile, kPitch = Shared::kPitch, kMatrixPitch = Shared::kMatrixPitch;
  constexpr int P = sizeof(C) == 4 ? kGroup : M == 8 ? 2 : 4, kHalf = P / 2;
  constexpr bool kOutput = kPass == Pass::kOutput, kReverse = kPass == Pass::kGradients;
  const Problem& problem = args.problem;

  extern __shared__ uint4 selective_memory[];
  C* const row_dt = reinterpret_cast<C*>(selective_memory);  // later y
  C* const row_input = row_dt + Shared::kRow;                // dt u, or the gradient of y
  C* const matrix_B = row_input + Shared::kRow;
  C* const matrix_C = matrix_B + Shared::kMatrix;
  C* const bias = matrix_C + Shared::kMatrix;  // of a channel
  C* const skip = bias + Layout::kChannels;    // D of a channel

  launch_dependents();
  grid_dependency_wait();
  // This thread's channel and states, and the run that it moves.
  const Block block(problem, args.tiling, Layout::kChannels, args.first_segment);
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
  C* const of_segment =
      static_cast<C*>(args.states) + block.row * problem.channels * states + state_row;
  if (kOutput && args.states != nullptr) h = load_states<C, M>(of_segment, valid);
  load_channels(bias, problem.delta_bias, block.first, block.end, Layout::kChannels);
  load_channels(skip, problem.D, block.first, block.end, Layout::kChannels);
  __syncthreads();

  const bool has_z = problem.z.data != nullptr;
  const bool varying_B = !kReverse && (!kConstant || !problem.B.constant);
  const bool varying_C = kPass != Pass::kStates && (!kConstant || !problem.C.constant);
  const int64_t stored = (length + args.spacing - 1) / args.spacing;
  C total = 0;  // of dt
  // The values of the next tile are in flight while a tile is computed.
  constexpr bool kAhead = MatrixTile<C, Layout>::kRounds == 1;
  MatrixTiles<C, Layout> matrices = {{}, {}, varying_B, varying_C};
  Run<T, R> next_u = {}, next_delta = {}, next_z = {};
  const int tiles = static_cast<int>((block.stop - block.start + kTile - 1) / kTile);
#pragma unroll 1
  for (int number = -1; number < tiles; ++number) {
    const auto position_of = [&](int of) {
      return block.start + static_cast<int64_t>(kReverse ? tiles - 1 - of : of) * kTile;
    };
    const int64_t begin = position_of(number);
    const int count = own_run.valid(block.end - block.first, length - begin);

    // ------------------------------------------------------------ Load the tile
    const Run<T, R> u = next_u;
    Run<T, R> z = next_z;
    if (number >= 0) {
      if (!kAhead) matrices.load(problem, block, begin);
      Run<C, R> dt, input;
      const Run<C, R> own_bias = get_channels<R>(bias, own_run);
      // Branches are around loops, so that the chains of all values are in flight at once.
#pragma unroll
      for (int i = 0; i < R; ++i) dt.set(i, next_delta[i] + own_bias[i]);
      if (problem.softplus) {
#pragma unroll
        for (int i = 0; i < R; ++i) dt.set(i, softplus(dt[i]));
      }
#pragma unroll
      for (int i = 0; i < R; ++i) {
        if (i >= count) dt.set(i, 0);  // leaves the state unchanged
        input.set(i, i < count ? (kReverse ? C{1} : dt[i]) * u[i] : C{0});
      }
      if (kReverse && has_z) {
#pragma unroll
        for (int i = 0; i < R; ++i) input.set(i, input[i] * (z[i] * sigmoid(z[i])));
      }
      put_run(row_dt, kPitch, own_run, dt);
      put_run(row_input, kPitch, own_run, input);
      matrices.store(matrix_B, matrix_C, problem, block, begin);
    }
    if (number + 1 < tiles) {
      const int64_t next = position_of(number + 1);
      const int next_count = own_run.valid(block.end - block.first, length - next);
      const auto load = [&](const Sequence& sequence) {
        return load_run<T, R>(sequence, own_run, block.batch, block.first, next,
                              sequence.data == nullptr ? 0 : next_count);
      };
      next_u = load(problem.u);
      next_delta = load(problem.delta);
      if (kPass != Pass::kStates) next_z = load(problem.z);
      if (kAhead) matrices.load(problem, block, next);
    }
    if (number < 0) continue;
    __syncthreads();

    // ------------------------------------------------------------ Go through the positions
#pragma unroll 1
    for (int step = 0; step < kTile; step += P) {
      const int first = kReverse ? kTile - P - step : step;
      if (kPass == Pass::kStates && args.checkpoints != nullptr &&
          (first & (args.spacing - 1)) == 0 && begin + first < length) {
        const int64_t at =
            (block.batch * stored + (begin + first) / args.spacing) * problem.channels;
        store_states(static_cast<C*>(args.checkpoints) + at * states + state_row, h, valid);
        if (args.elapsed != nullptr && own && lane == 0) {
          static_cast<C*>(args.elapsed)[at + channel] = total;
        }
      }
      C y[P];
#pragma unroll
      for (int half = 0; half < P; half += kHalf) {
        const int start = first + (kReverse ? P - kHalf - half : half);
        const auto dt = load_row<kHalf>(row_dt + row * kPitch + start);
        const auto input = load_row<kHalf>(row_input + row * kPitch + start);
#pragma unroll
        for (int k = 0; k < kHalf; ++k) {
          const int p = kReverse ? kHalf - 1 - k : k, at = (start + p) * kMatrixPitch + lane * M;
          const auto B = varying_B ? load_shared_states<M>(matrix_B + at) : constant_B;
          const auto c = varying_C ? load_shared_states<M>(matrix_C + at) : constant_C;
          C sum = 0;
#pragma unroll
          for (int i = 0; i < M; ++i) {
            const C a = exp2_of(dt[p] * decay.values[i]);
            if constexpr (kReverse) {
              h.values[i] = a * multiply_add(input[p], c.values[i], h.values[i]);
            } else {
              h.values[i] = multiply_add(a, h.values[i], input[p] * B.values[i]);
            }
            if (kOutput) sum = multiply_add(c.values[i], h.values[i], sum);
          }
          y[half + k] = sum;
          if (kPass == Pass::kStates) total += dt[p];
        }
      }
      if constexpr (kOutput) {
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
    if constexpr (kOutput) {
      const Run<C, R> y = get_run<R>(row_dt, kPitch, own_run);
      const Run<C, R> own_skip = get_channels<R>(skip, own_run);
      Run<C, R> value;
#pragma unroll
      for (int i = 0; i < R; ++i) value.set(i, multiply_add(own_skip[i], u[i], y[i]));
      if (has_z) {
#pragma unroll
        for (int i = 0; i < R; ++i) value.set(i, value[i] * (z[i] * sigmoid(z[i])));
      }
      Run<T, R> out;
#pragma unroll
      for (int i = 0; i < R; ++i) out.set(i, value[i]);
      store_run(out, problem.out, own_run, block.batch, block.first, begin, count);
    }
  }
  if (!kOutput && args.states != nullptr) {
    store_states(of_segment, h, valid);
    if (kPass == Pass::kStates && own && lane == 0) {
      static_cast<C*>(args.seconds)[block.row * problem.channels + channel] = total;
    }
  }
  if (kOutput && problem.last_state != nullptr && block.stop == length) {
    store_states(
        static_cast<C*>(problem.last_state) + block.batch * problem.channels * states + state_row,
        h, valid);
  }
}

template <typename C>
__global__ __launch_bounds__(kThreads) void combine_segments(
    const __grid_constant__ CombineArgs args) {
  constexpr int kInFlight = 8;
  launch_dependents();
  grid_dependency_wait();
  const auto channels = static_cast<uint32_t>(args.problem.channels);
  const auto states = static_cast<uint32_t>(args.problem.states);
  const int64_t rows = static_cast<int64_t>(channels) * states, segments = args.segments;
  const int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (i >= args.problem.batch * rows) return;
  const int64_t batch = i / rows;
  const auto row = static_cast<uint32_t>(i - batch * rows);
  C* const of_segments = static_cast<C*>(args.states) + batch * segments * rows + row;
  const C* const seconds =
      static_cast<const C*>(args.seconds) + batch * segments * channels + row / states;
  const C decay = static_cast<const C*>(args.problem.A)[row] * kLog2E<C>;
  C h = args.initial == nullptr ? C{0} : static_cast<const C*>(args.initial)[i];
  for (int64_t first = 0; first < segments; first += kInFlight) {
    C own[kInFlight] = {}, a[kInFlight] = {};
    const auto segment = [&](int k) { return args.reverse ? segments - 1 - first - k : first + k; };
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      if (first + k < segments - 1) {  // nothing follows the last one
        own[k] = of_segments[segment(k) * rows];
        a[k] = exp2_of(seconds[segment(k) * channels] * decay);
      }
    }
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      if (first + k >= segments) break;
      of_segments[segment(k) * rows] = h;
      h = multiply_add(a[k], h, own[k]);
    }
  }
}

}  // namespace gpuopt::selective
