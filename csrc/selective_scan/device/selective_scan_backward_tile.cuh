// A tile of the backward kernel in shared memory: how the rows and the gradients of B and C get
// there and back.
#pragma once

#include "selective_scan/device/selective_scan_tile.cuh"

namespace gpuopt::selective {

template <typename T, typename Layout, bool kConstant>
struct BackwardTile {
  using C = compute_t<T>;
  using Shared = BackwardShared<C, Layout>;
  static constexpr int kStates = Layout::kStates, kLanes = Layout::kLanes, kTile = Layout::kTile;
  static constexpr int kPadded = Layout::kPadded, kRun = Layout::kRun;
  static constexpr int kPitch = Shared::kPitch, kMatrixPitch = Shared::kMatrixPitch;
  using States = Vec<C, kStates>;
  using Values = Run<C, kRun>;

  const BackwardArgs& args;
  const Block block;
  const int lane, row;  // of this thread's states in a channel; of its channel in a set
  const bool has_z, varying_B, varying_C;

  // Rows are [channels of a set][positions + padding], and matrices [positions][states + padding].
  States* starts;  // [groups of the tile][threads]: the states before each group
  C* rows_dt;
  C* rows_u;      // later the gradient of u
  C* rows_slope;  // of dt over delta; later the gradient of delta
  C* rows_dy;     // the gradient of y
  C* rows_dz;     // what y is multiplied by; later the gradient of z
  C *matrix_B, *matrix_C;
  C* parts;  // [warps][positions][gradients of B and C]
  C* bias;   // of a channel

  int64_t first, last;                        // tiles of the block
  int64_t number, begin, first_channel, set;  // of the tile: its position and set of channels

  __device__ __forceinline__ BackwardTile(const BackwardArgs& backward_args, uint4* memory)
      : args(backward_args),
        block(args.problem, args.tiling, Layout::kChannels),
        lane(static_cast<int>(threadIdx.x) % kLanes),
        row(static_cast<int>(threadIdx.x) / kLanes),
        has_z(args.problem.z.data != nullptr),
        varying_B(!kConstant || !args.problem.B.constant),
        varying_C(!kConstant || !args.problem.C.constant) {
    starts = reinterpret_cast<States*>(memory);
    rows_dt = reinterpret_cast<C*>(memory) + Shared::kStarts;
    rows_u = rows_dt + Shared::kRow;
    rows_slope = rows_u + Shared::kRow;
    rows_dy = rows_slope + Shared::kRow;
    rows_dz = rows_dy + Shared::kRow;
    matrix_B = rows_dz + Shared::kRow;
    matrix_C = matrix_B + Shared::kMatrix;
    parts = matrix_C + Shared::kMatrix;
    bias = parts + kWarps * Shared::kPart;
    first = block.start / kTile;
    last = (block.stop - 1) / kTile;
  }

  __device__ __forceinline__ void select(int64_t tile_number, int64_t set_number) {
    number = tile_number;
    begin = number * kTile;
    set = set_number;
    first_channel = block.first + set * Layout::kChannels;
  }

  __device__ __forceinline__ bool is_last() const { return number == last; }

  // The values of a run inside of the tensors.
  __device__ __forceinline__ int valid(const TileRun<Layout>& run) const {
    return run.valid(block.end - first_channel, args.problem.length - begin);
  }

  // Loads u, delta, z and the gradient of out, and computes the rows from them.
  __device__ __forceinline__ void load_rows(const TileRun<Layout>& run, int count) const {
    const auto load = [&](const Sequence& sequence) {
      return load_run<T, kRun>(sequence, run, block.batch, first_channel, begin,
                               sequence.data == nullptr ? 0 : count);
    };
    const Run<T, kRun> u = load(args.problem.u), delta = load(args.problem.delta);
    const Run<T, kRun> z = load(args.problem.z), dout = load(args.gradients.out);
    const Values own_bias = get_channels<kRun>(bias, run);
    Values dy, dz, dt, slope, input;
    // Branches are around loops, so that the chains of all values are in flight at once.
#pragma unroll
    for (int i = 0; i < kRun; ++i) dy.set(i, dout[i]);
    if (has_z) {
#pragma unroll
      for (int i = 0; i < kRun; ++i) {
        const C gate = sigmoid(z[i]);
        dz.set(i, dy[i] * gate * (1 + z[i] * (1 - gate)));
        dy.set(i, dy[i] * (z[i] * gate));
      }
      put_run(rows_dz, kPitch, run, dz);
    }
    put_run(rows_dy, kPitch, run, dy);
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      dt.set(i, delta[i] + own_bias[i]);
      slope.set(i, 1);
    }
    if (args.problem.softplus) {
#pragma unroll
      for (int i = 0; i < kRun; ++i) {
        slope.set(i, softplus_slope(dt[i]));
        dt.set(i, softplus(dt[i]));
      }
    }
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      if (i >= count) {
        dt.set(i, 0);
        slope.set(i, 0);
      }
    }
    put_run(rows_dt, kPitch, run, dt);
    put_run(rows_slope, kPitch, run, slope);
#pragma unroll
    for (int i = 0; i < kRun; ++i) input.set(i, u[i]);
    put_run(rows_u, kPitch, run, input);
  }

  // Adds the gradients of B and C at a position over the channels of the warp, and keeps the sums
  // in its part of shared memory.
  __device__ __forceinline__ void add_channels(int position, C (&values)[2 * kStates]) const {
    constexpr int kOthers = 32 / kLanes;  // channels of a warp
    const int thread = static_cast<int>(threadIdx.x), other = thread % 32 / kLanes;
    sum_over_lanes<kLanes, kOthers>(values);
    C* const to = parts + thread / 32 * Shared::kPart + position * 2 * kPadded +
                  first_sum<2 * kStates, kOthers>(other) * kLanes + lane;
    if (other < 2 * kStates) {
#pragma unroll
      for (int k = 0; k < kSums<2 * kStates, kOthers>; ++k) {
        if (set > 0) values[k] += to[k * kLanes];
        to[k * kLanes] = values[k];
      }
    }
  }

  // Stores the rows of gradients.
  __device__ __forceinline__ void store_rows() const {
    const TileRun<Layout> run(args.problem);  // computed again to save registers
    const int count = valid(run);
    const auto store = [&](const C* from, const Sequence& sequence) {
      const Values values = get_run<kRun>(from, kPitch, run);
      Run<T, kRun> rounded;
#pragma unroll
      for (int i = 0; i < kRun; ++i) rounded.set(i, values[i]);
      store_run(rounded, sequence, run, block.batch, first_channel, begin, count);
    };
    store(rows_u, args.gradients.u);
    store(rows_slope, args.gradients.delta);
    if (has_z) store(rows_dz, args.gradients.z);
  }

  // Adds the warps' gradients of a varying B and C, and stores them.
  __device__ __forceinline__ void add_parts() const {
    if (!varying_B && !varying_C) return;
    const Problem& problem = args.problem;
    const int states = static_cast<int>(problem.states);
    const int64_t in_group = (block.batch * problem.groups + block.group) * args.tiling.parts;
    const int64_t first = ((in_group + block.number) * problem.length + begin) * states;
    const int rows = static_cast<int>(min(problem.length - begin, int64_t{kTile}));
    for (int i = static_cast<int>(threadIdx.x); i < rows * states; i += kThreads) {
      const int p = i / states, n = i % states;
      const int from = p * 2 * kPadded + n % kStates * kLanes + n / kStates;
      C dB = 0, dC = 0;
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) {
        dB += parts[warp * Shared::kPart + from];
        dC += parts[warp * Shared::kPart + from + kPadded];
      }
      if (varying_B) static_cast<C*>(args.gradients.B)[first + i] = dB;
      if (varying_C) static_cast<C*>(args.gradients.C)[first + i] = dC;
    }
  }
};

}  // namespace gpuopt::selective
