// The backward kernel. A block goes through its tiles from the last to the first. In a tile, each
// thread goes forward from the tile's checkpoint and keeps the states before every group of
// positions. Then it takes the groups from the last to the first: forward once more, with states
// and factors in registers, and back with the gradient of the state.
//
//   g_t = C_t dy_t + a_(t+1) g_(t+1)          the gradient of h_t
//   w_t = g_t a_t h_(t-1)                     the gradient of dt_t A
//   dC_t = sum over channels of dy_t h_t      dB_t = sum over channels of g_t dt_t u_t
//   ddt_t = sum over n of w_t A + u_t s_t     du_t = dt_t s_t + D dy_t,  s_t = sum over n of g_t
//   B_t dA = sum over t of w_t dt_t
#pragma once

#include "common/launch.cuh"
#include "selective_scan/device/selective_scan_backward_tile.cuh"

namespace gpuopt::selective {

// The states of a channel that a thread holds in registers, and their gradients. The kernel calls
// the public methods in their order.
template <typename T, typename Layout, bool kConstant>
class BackwardStates {
  using Tile = BackwardTile<T, Layout, kConstant>;
  using C = typename Tile::C;
  using States = typename Tile::States;
  static constexpr int kStates = Layout::kStates, kLanes = Layout::kLanes;
  static constexpr int kPitch = Tile::kPitch, kMatrixPitch = Tile::kMatrixPitch;
  static constexpr int kPositions = kSteps<C, Layout>;  // of a group
  // Positions whose sums over lanes are added up at once.
  static constexpr int kSummed = kPositions < 4 ? kPositions : 4;

 public:
  static constexpr int kGroups = Layout::kTile / kPositions;

  // A group in registers: the states before it and after each position, and the factors.
  struct Group {
    States before, after[kPositions], factors[kPositions];
  };

  __device__ __forceinline__ BackwardStates(const Tile& tile)
      : args_(tile.args), tile_(tile), lane_(tile.lane) {}

  // ---------------------------------------------------------------- Load

  // Loads the tile into shared memory, and what belongs to this thread's states into registers.
  __device__ __forceinline__ void load() {
    channel_ = tile_.first_channel + tile_.row;
    has_channel_ = channel_ < tile_.block.end;
    const int states = static_cast<int>(args_.problem.states);
    valid_ = has_channel_ ? min(max(states - lane_ * kStates, 0), kStates) : 0;
    in_row_ = tile_.block.row * args_.problem.channels + channel_;
    state_row_ = in_row_ * states + lane_ * kStates;

    const TileRun<Layout> run(args_.problem);
    const int count = tile_.valid(run);
    if (args_.tiling.sets > 1 || tile_.is_last()) {
      load_channels(tile_.bias, args_.problem.delta_bias, tile_.first_channel, tile_.block.end,
                    Layout::kChannels);
      __syncthreads();
    }
    MatrixTiles<C, Layout> matrices = {
        {}, {}, tile_.varying_B && tile_.set == 0, tile_.varying_C && tile_.set == 0};
    matrices.load(args_.problem, tile_.block, tile_.begin);
    load_states_before();
    tile_.load_rows(run, count);
    matrices.store(tile_.matrix_B, tile_.matrix_C, args_.problem, tile_.block, tile_.begin);
    load_sums();
    __syncthreads();
  }

  // ---------------------------------------------------------------- Forward

  // Goes through the tile, and keeps the states before every group.
  __device__ __forceinline__ void find_starts() {
    for (int group = 0; group < kGroups; ++group) {
      tile_.starts[group * kThreads + static_cast<int>(threadIdx.x)] = h_;
      if (group == kGroups - 1) break;
      const int start = tile_.row * kPitch + group * kPositions;
      const auto dt = load_row<kPositions>(tile_.rows_dt + start);
      const auto u = load_row<kPositions>(tile_.rows_u + start);
#pragma unroll
      for (int p = 0; p < kPositions; ++p) {
        const States B = B_at(group * kPositions + p);
        const C dtu = dt[p] * u[p];
#pragma unroll
        for (int i = 0; i < kStates; ++i) {
          h_.values[i] =
              multiply_add(exp2_of(dt[p] * decay_.values[i]), h_.values[i], dtu * B.values[i]);
        }
      }
    }
  }

  // Computes a group's states, and the gradients of z from them.
  __device__ __forceinline__ void go_forward(int number, Group& group) {
    const int first = number * kPositions, start = tile_.row * kPitch + first;
    group.before = tile_.starts[number * kThreads + static_cast<int>(threadIdx.x)];
    C y[kPositions];
    {
      const auto dt = load_row<kPositions>(tile_.rows_dt + start);
      const auto u = load_row<kPositions>(tile_.rows_u + start);
      h_ = group.before;
#pragma unroll
      for (int p = 0; p < kPositions; ++p) {
        const States B = B_at(first + p);
        const C dtu = dt[p] * u[p];
        y[p] = 0;
#pragma unroll
        for (int i = 0; i < kStates; ++i) {
          const C factor = exp2_of(dt[p] * decay_.values[i]);
          group.factors[p].values[i] = factor;
          h_.values[i] = multiply_add(factor, h_.values[i], dtu * B.values[i]);
        }
        group.after[p] = h_;
        if (tile_.has_z) {
          const States c = C_at(first + p);
#pragma unroll
          for (int i = 0; i < kStates; ++i) y[p] = multiply_add(c.values[i], h_.values[i], y[p]);
        }
      }
    }
    if (tile_.has_z) {
      sum_over_lanes<1, kLanes>(y);
      const int at = start + first_sum<kPositions, kLanes>(lane_);
      if (lane_ < kPositions) {
#pragma unroll
        for (int k = 0; k < kSums<kPositions, kLanes>; ++k) {
          tile_.rows_dz[at + k] *= multiply_add(skip_, tile_.rows_u[at + k], y[k]);
        }
      }
    }
  }

  // ---------------------------------------------------------------- Back

  // Goes back through a group, and replaces its rows by gradients.
  __device__ __forceinline__ void go_back(int number, const Group& group) {
#pragma unroll
    for (int part = kPositions - kSummed; part >= 0; part -= kSummed) {
      const int first = number * kPositions + part;
      C s[kSummed], w[kSummed];
#pragma unroll
      for (int q = kSummed - 1; q >= 0; --q) {
        const int p = part + q;
        const States& previous = p > 0 ? group.after[p > 0 ? p - 1 : 0] : group.before;
        go_back_from(first + q, previous, group.after[p], group.factors[p], s[q], w[q]);
      }
      sum_over_lanes<1, kLanes>(s);
      sum_over_lanes<1, kLanes>(w);
      __syncwarp();  // all lanes have read this part of the rows
      if (lane_ >= kSummed) continue;
      const int at = tile_.row * kPitch + first + first_sum<kSummed, kLanes>(lane_);
#pragma unroll
      for (int k = 0; k < kSums<kSummed, kLanes>; ++k) {
        const C u = tile_.rows_u[at + k], dy = tile_.rows_dy[at + k];
        const C ddelta = multiply_add(u, s[k], kLn2<C> * w[k]) * tile_.rows_slope[at + k];
        dD_ = multiply_add(dy, u, dD_);
        dbias_ += ddelta;
        tile_.rows_u[at + k] = multiply_add(tile_.rows_dt[at + k], s[k], skip_ * dy);
        tile_.rows_slope[at + k] = ddelta;
      }
    }
  }

  // ---------------------------------------------------------------- Store

  // Stores the gradients that are sums over positions, for the next tile or as the result.
  __device__ __forceinline__ void store_sums() {
    const Gradients& gradients = args_.gradients;
    C all[2] = {dD_, dbias_};
    for (int bit = 1; bit < kLanes; bit *= 2) {
      all[0] += shuffle_xor(all[0], bit);
      all[1] += shuffle_xor(all[1], bit);
    }
    if (has_channel_ && lane_ == 0) {
      static_cast<C*>(gradients.D)[in_row_] = all[0];
      static_cast<C*>(gradients.delta_bias)[in_row_] = all[1];
    }
    store_states(static_cast<C*>(gradients.A) + state_row_, dA_, valid_);
    if (args_.tiling.sets > 1) {
      store_states(static_cast<C*>(args_.carry) + state_row_, g_, valid_);
    }
    if constexpr (kConstant) {
      if (!tile_.varying_B) {
        store_states(static_cast<C*>(gradients.B) + state_row_, constant_dB_, valid_);
      }
      if (!tile_.varying_C) {
        store_states(static_cast<C*>(gradients.C) + state_row_, constant_dC_, valid_);
      }
    }
  }

 private:
  // ---------------------------------------------------------------- Parts of load()

  // Loads the factors of channels, and the states before the tile: the checkpoint, and what is left
  // of the states before the segment.
  __device__ __forceinline__ void load_states_before() {
    const Problem& problem = args_.problem;
    h_ = decay_ = constant_B_ = constant_C_ = {};
    skip_ = 0;
    if (has_channel_) {
      const int64_t tiles = (problem.length + Layout::kTile - 1) / Layout::kTile;
      const int64_t at = (tile_.block.batch * tiles + tile_.number) * problem.channels + channel_;
      const int64_t states = problem.states;
      h_ = load_states<C, kStates>(
          static_cast<const C*>(args_.checkpoints) + at * states + lane_ * kStates, valid_);
      decay_ = load_states<C, kStates>(
          static_cast<const C*>(problem.A) + channel_ * states + lane_ * kStates, valid_);
      if (problem.D != nullptr) skip_ = static_cast<const C*>(problem.D)[channel_];
#pragma unroll
      for (int i = 0; i < kStates; ++i) decay_.values[i] *= kLog2E<C>;
      if (args_.states != nullptr) {
        const C seconds = static_cast<const C*>(args_.elapsed)[at];
        const States given =
            load_states<C, kStates>(static_cast<const C*>(args_.states) + state_row_, valid_);
#pragma unroll
        for (int i = 0; i < kStates; ++i) {
          h_.values[i] =
              multiply_add(exp2_of(seconds * decay_.values[i]), given.values[i], h_.values[i]);
        }
      }
    }
    if constexpr (kConstant) {
      const int64_t state = lane_ * kStates;
      const auto load = [&](const Matrix& matrix) {
        return load_constant<C, kStates>(matrix, channel_, state, valid_);
      };
      if (!tile_.varying_B) constant_B_ = load(problem.B);
      if (!tile_.varying_C) constant_C_ = load(problem.C);
    }
  }

  // Begins the sums over positions. With several sets of channels, loads the set's sums from
  // memory, because registers hold the sums of one set.
  __device__ __forceinline__ void load_sums() {
    const Gradients& gradients = args_.gradients;
    const auto load = [&](const void* from) {
      return load_states<C, kStates>(static_cast<const C*>(from) + state_row_, valid_);
    };
    if (tile_.is_last()) {
      g_ = dA_ = constant_dB_ = constant_dC_ = {};
      dD_ = dbias_ = 0;
      const void* const after =
          args_.states_gradient != nullptr ? args_.states_gradient : gradients.last_state;
      if (after != nullptr) g_ = load(after);
    } else if (args_.tiling.sets > 1) {
      g_ = load(args_.carry);
      dA_ = load(gradients.A);
      if constexpr (kConstant) {
        if (!tile_.varying_B) constant_dB_ = load(gradients.B);
        if (!tile_.varying_C) constant_dC_ = load(gradients.C);
      }
      const bool first = has_channel_ && lane_ == 0;
      dD_ = first ? static_cast<const C*>(gradients.D)[in_row_] : C{0};
      dbias_ = first ? static_cast<const C*>(gradients.delta_bias)[in_row_] : C{0};
    }
  }

  // ---------------------------------------------------------------- Parts of go_back()

  // Goes back from the states after a position to the states before it. Sets s and w to this lane's
  // parts of s_t and of the sum over n of w_t A.
  __device__ __forceinline__ void go_back_from(int position, const States& before,
                                               const States& after, const States& factors, C& s,
                                               C& w) {
    const int at = tile_.row * kPitch + position;
    const C dt = tile_.rows_dt[at], dy = tile_.rows_dy[at], dtu = dt * tile_.rows_u[at];
    const States B = B_at(position), c = C_at(position);
    C to_channels[2 * kStates];  // the gradients of B and C
    s = w = 0;
#pragma unroll
    for (int i = 0; i < kStates; ++i) {
      const C gradient = multiply_add(c.values[i], dy, g_.values[i]);
      s = multiply_add(gradient, B.values[i], s);
      to_channels[i] = gradient * dtu;
      to_channels[kStates + i] = after.values[i] * dy;
      g_.values[i] = gradient * factors.values[i];
      const C of_exponent = g_.values[i] * before.values[i];
      dA_.values[i] = multiply_add(of_exponent, dt, dA_.values[i]);
      w = multiply_add(of_exponent, decay_.values[i], w);
    }
    if constexpr (kConstant) {
#pragma unroll
      for (int i = 0; i < kStates; ++i) {
        constant_dB_.values[i] += to_channels[i];
        constant_dC_.values[i] += to_channels[kStates + i];
      }
    }
    if (tile_.varying_B || tile_.varying_C) tile_.add_channels(position, to_channels);
  }

  __device__ __forceinline__ States B_at(int position) const {
    if (!tile_.varying_B) return constant_B_;
    return load_shared_states<kStates>(tile_.matrix_B + position * kMatrixPitch + lane_ * kStates);
  }
  __device__ __forceinline__ States C_at(int position) const {
    if (!tile_.varying_C) return constant_C_;
    return load_shared_states<kStates>(tile_.matrix_C + position * kMatrixPitch + lane_ * kStates);
  }

  const BackwardArgs& args_;
  const Tile& tile_;
  const int lane_;
  int64_t channel_, in_row_, state_row_;  // this thread's channel, and indices in gradients
  bool has_channel_;
  int valid_;  // states that exist

  States h_, decay_, constant_B_, constant_C_;  // decay: A log2(e)
  C skip_;                                      // D of the channel
  // The gradients of the state, A, constant B and C, D and delta_bias: sums over positions.
  States g_ = {}, dA_ = {}, constant_dB_ = {}, constant_dC_ = {};
  C dD_ = 0, dbias_ = 0;
};

template <typename T, typename Layout, bool kConstant>
__global__ __launch_bounds__(
    kThreads,
    blocks_per_sm(Layout::kStates, Layout::kLanes, true, sizeof(compute_t<T>) == 8,
                  kConstant)) void scan_backward(const __grid_constant__ BackwardArgs args) {
  using Thread = BackwardStates<T, Layout, kConstant>;
  extern __shared__ uint4 selective_memory[];
  launch_dependents();
  grid_dependency_wait();
  BackwardTile<T, Layout, kConstant> tile(args, selective_memory);
  Thread states(tile);
  for (int64_t number = tile.last; number >= tile.first; --number) {
    for (int64_t set = 0; set < args.tiling.sets; ++set) {
      tile.select(number, set);
      states.load();
      states.find_starts();
      for (int group = Thread::kGroups - 1; group >= 0; --group) {
        typename Thread::Group registers;
        states.go_forward(group, registers);
        states.go_back(group, registers);
      }
      if (number == tile.first || args.tiling.sets > 1) states.store_sums();
      __syncthreads();
      tile.store_rows();
    }
    tile.add_parts();
  }
}

}  // namespace gpuopt::selective
