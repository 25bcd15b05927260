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
#include "selective_scan/device/selective_scan_tile.cuh"

namespace gpuopt::selective {

template <typename T, typename Layout, bool kConstant>
__global__ __launch_bounds__(
    kThreads,
    blocks_per_sm(Layout::kStates, Layout::kLanes, true, sizeof(compute_t<T>) == 8,
                  kConstant)) void scan_backward(const __grid_constant__ BackwardArgs args) {
  using C = compute_t<T>;
  using Shared = BackwardShared<C, Layout>;
  constexpr int M = Layout::kStates, R = Layout::kRun, P = kSteps<C, Layout>;
  constexpr int Q = P < 4 ? P : 4;  // positions whose sums are added up at once
  const Problem& problem = args.problem;
  const Gradients& gradients = args.gradients;
  const Tiling& tiling = args.tiling;
  constexpr int kTile = Layout::kTile, kLanes = Layout::kLanes, kPadded = Layout::kPadded;
  constexpr int kPitch = Shared::kPitch, kMatrixPitch = Shared::kMatrixPitch;
  using States = Vec<C, M>;

  extern __shared__ uint4 selective_memory[];
  auto* const starts =
      reinterpret_cast<States*>(selective_memory);  // [groups of the tile][threads]
  C* const row_dt = reinterpret_cast<C*>(selective_memory) + Shared::kStarts;
  C* const row_u = row_dt + Shared::kRow;      // later the gradient of u
  C* const row_slope = row_u + Shared::kRow;   // of dt over delta; later the gradient of delta
  C* const row_dy = row_slope + Shared::kRow;  // the gradient of y
  C* const row_dz = row_dy + Shared::kRow;     // what y is multiplied by; later the gradient of z
  C* const matrix_B = row_dz + Shared::kRow;
  C* const matrix_C = matrix_B + Shared::kMatrix;
  C* const all_parts = matrix_C + Shared::kMatrix;     // [warps][positions][gradients of B and C]
  C* const bias = all_parts + kWarps * Shared::kPart;  // of a channel

  launch_dependents();
  grid_dependency_wait();
  const Block block(problem, tiling, Layout::kChannels);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kLanes, row = thread / kLanes;
  const int states = static_cast<int>(problem.states);
  const int64_t length = problem.length, tiles = (length + kTile - 1) / kTile;
  const int64_t first_tile = block.start / kTile, last_tile = (block.stop - 1) / kTile;
  const bool has_z = problem.z.data != nullptr;
  const bool varying_B = !kConstant || !problem.B.constant;
  const bool varying_C = !kConstant || !problem.C.constant;
  C* const own_part = all_parts + thread / 32 * Shared::kPart;

  States dA = {}, g = {}, constant_dB = {}, constant_dC = {};
  C sums[2] = {};  // the gradients of D and delta_bias
  for (int64_t number = last_tile; number >= first_tile; --number) {
    const int64_t begin = number * kTile;
    for (int64_t set = 0; set < tiling.sets; ++set) {
      const int64_t first_channel = block.first + set * Layout::kChannels;
      const int64_t channel = first_channel + row;
      const bool own = channel < block.end;
      const int valid = own ? min(max(states - lane * M, 0), M) : 0;
      const int64_t in_row = block.row * problem.channels + channel;
      const int64_t state_row = in_row * states + lane * M;

      // ---------------------------------------------------------- Load the tile
      const TileRun<Layout> own_run(problem);
      const int count = own_run.valid(block.end - first_channel, length - begin);
      if (tiling.sets > 1 || number == last_tile) {
        load_channels(bias, problem.delta_bias, first_channel, block.end, Layout::kChannels);
        __syncthreads();
      }
      const auto load = [&](const Sequence& sequence) {
        return load_run<T, R>(sequence, own_run, block.batch, first_channel, begin,
                              sequence.data == nullptr ? 0 : count);
      };
      MatrixTiles<C, Layout> matrices = {{}, {}, varying_B && set == 0, varying_C && set == 0};
      matrices.load(problem, block, begin);
      States h = {}, decay = {}, constant_B = {}, constant_C = {};
      C skip = 0;
      if (own) {
        const int64_t at = (block.batch * tiles + number) * problem.channels + channel;
        h = load_states<C, M>(static_cast<const C*>(args.checkpoints) + at * states + lane * M,
                              valid);
        decay = load_states<C, M>(static_cast<const C*>(problem.A) + channel * states + lane * M,
                                  valid);
        if (problem.D != nullptr) skip = static_cast<const C*>(problem.D)[channel];
#pragma unroll
        for (int i = 0; i < M; ++i) decay.values[i] *= kLog2E<C>;
        if (args.states != nullptr) {
          const C seconds = static_cast<const C*>(args.elapsed)[at];
          const States given =
              load_states<C, M>(static_cast<const C*>(args.states) + state_row, valid);
#pragma unroll
          for (int i = 0; i < M; ++i) {
            h.values[i] =
                multiply_add(exp2_of(seconds * decay.values[i]), given.values[i], h.values[i]);
          }
        }
      }
      if constexpr (kConstant) {
        if (!varying_B) constant_B = load_constant<C, M>(problem.B, channel, lane * M, valid);
        if (!varying_C) constant_C = load_constant<C, M>(problem.C, channel, lane * M, valid);
      }
      {
        const Run<T, R> u = load(problem.u), delta = load(problem.delta), z = load(problem.z);
        const Run<T, R> dout = load(gradients.out);
        const Run<C, R> own_bias = get_channels<R>(bias, own_run);
        Run<C, R> first, second;
        // Branches are around loops, so that the chains of all values are in flight at once.
#pragma unroll
        for (int i = 0; i < R; ++i) first.set(i, dout[i]);
        if (has_z) {
#pragma unroll
          for (int i = 0; i < R; ++i) {
            const C gate = sigmoid(z[i]);
            second.set(i, first[i] * gate * (1 + z[i] * (1 - gate)));
            first.set(i, first[i] * (z[i] * gate));
          }
          put_run(row_dz, kPitch, own_run, second);
        }
        put_run(row_dy, kPitch, own_run, first);
#pragma unroll
        for (int i = 0; i < R; ++i) {
          first.set(i, delta[i] + own_bias[i]);
          second.set(i, 1);
        }
        if (problem.softplus) {
#pragma unroll
          for (int i = 0; i < R; ++i) {
            second.set(i, softplus_slope(first[i]));
            first.set(i, softplus(first[i]));
          }
        }
#pragma unroll
        for (int i = 0; i < R; ++i) {
          if (i >= count) {
            first.set(i, 0);
            second.set(i, 0);
          }
        }
        put_run(row_dt, kPitch, own_run, first);
        put_run(row_slope, kPitch, own_run, second);
#pragma unroll
        for (int i = 0; i < R; ++i) first.set(i, u[i]);
        put_run(row_u, kPitch, own_run, first);
        matrices.store(matrix_B, matrix_C, problem, block, begin);
      }
      if (number == last_tile) {
        g = dA = constant_dB = constant_dC = {};
        sums[0] = sums[1] = 0;
        const void* const after =
            args.states_gradient != nullptr ? args.states_gradient : gradients.last_state;
        if (after != nullptr)
          g = load_states<C, M>(static_cast<const C*>(after) + state_row, valid);
      } else if (tiling.sets > 1) {
        g = load_states<C, M>(static_cast<const C*>(args.carry) + state_row, valid);
        dA = load_states<C, M>(static_cast<const C*>(gradients.A) + state_row, valid);
        if constexpr (kConstant) {
          if (!varying_B) {
            constant_dB = load_states<C, M>(static_cast<const C*>(gradients.B) + state_row, valid);
          }
          if (!varying_C) {
            constant_dC = load_states<C, M>(static_cast<const C*>(gradients.C) + state_row, valid);
          }
        }
        const bool first = own && lane == 0;
        sums[0] = first ? static_cast<const C*>(gradients.D)[in_row] : C{0};
        sums[1] = first ? static_cast<const C*>(gradients.delta_bias)[in_row] : C{0};
      }
      __syncthreads();

      // ---------------------------------------------------------- Forward to the starts of groups
      const auto B_at = [&](int position) {
        return varying_B ? load_shared_states<M>(matrix_B + position * kMatrixPitch + lane * M)
                         : constant_B;
      };
      const auto C_at = [&](int position) {
        return varying_C ? load_shared_states<M>(matrix_C + position * kMatrixPitch + lane * M)
                         : constant_C;
      };
      constexpr int groups = kTile / P;
      const C* const own_dt = row_dt + row * kPitch;
      const C* const own_u = row_u + row * kPitch;
      const C* const own_dy = row_dy + row * kPitch;
      for (int group = 0; group < groups; ++group) {
        starts[group * kThreads + thread] = h;
        if (group == groups - 1) break;
        const auto dt = load_row<P>(own_dt + group * P), u = load_row<P>(own_u + group * P);
#pragma unroll
        for (int p = 0; p < P; ++p) {
          const States B = B_at(group * P + p);
          const C dtu = dt[p] * u[p];
#pragma unroll
          for (int i = 0; i < M; ++i) {
            h.values[i] =
                multiply_add(exp2_of(dt[p] * decay.values[i]), h.values[i], dtu * B.values[i]);
          }
        }
      }

      for (int group = groups - 1; group >= 0; --group) {
        // -------------------------------------------------------- Forward through a group
        const int start = group * P;
        const States before = starts[group * kThreads + thread];
        States a[P], after[P];
        C y[P];
        {
          const auto dt = load_row<P>(own_dt + start), u = load_row<P>(own_u + start);
          h = before;
#pragma unroll
          for (int p = 0; p < P; ++p) {
            const States B = B_at(start + p);
            const C dtu = dt[p] * u[p];
            y[p] = 0;
#pragma unroll
            for (int i = 0; i < M; ++i) {
              a[p].values[i] = exp2_of(dt[p] * decay.values[i]);
              h.values[i] = multiply_add(a[p].values[i], h.values[i], dtu * B.values[i]);
            }
            after[p] = h;
            if (has_z) {
              const States c = C_at(start + p);
#pragma unroll
              for (int i = 0; i < M; ++i) {
                y[p] = multiply_add(c.values[i], h.values[i], y[p]);
              }
            }
          }
        }
        if (has_z) {
          sum_over_lanes<1, kLanes>(y);
          const int at = row * kPitch + start + first_sum<P, kLanes>(lane);
          if (lane < P) {
#pragma unroll
            for (int k = 0; k < kSums<P, kLanes>; ++k) {
              row_dz[at + k] *= multiply_add(skip, row_u[at + k], y[k]);
            }
          }
        }

        // -------------------------------------------------------- Back through the group
#pragma unroll
        for (int part = P - Q; part >= 0; part -= Q) {
          C s[Q], w[Q];
#pragma unroll
          for (int q = Q - 1; q >= 0; --q) {
            const int p = part + q, position = start + p;
            const C dt = own_dt[position], dy = own_dy[position], dtu = dt * own_u[position];
            const States B = B_at(position), c = C_at(position);
            const States& previous = p > 0 ? after[p > 0 ? p - 1 : 0] : before;
            C to_channels[2 * M];  // the gradients of B and C
            s[q] = w[q] = 0;
#pragma unroll
            for (int i = 0; i < M; ++i) {
              const C gradient = multiply_add(c.values[i], dy, g.values[i]);
              s[q] = multiply_add(gradient, B.values[i], s[q]);
              to_channels[i] = gradient * dtu;
              to_channels[M + i] = after[p].values[i] * dy;
              g.values[i] = gradient * a[p].values[i];
              const C of_exponent = g.values[i] * previous.values[i];
              dA.values[i] = multiply_add(of_exponent, dt, dA.values[i]);
              w[q] = multiply_add(of_exponent, decay.values[i], w[q]);
            }
            if constexpr (kConstant) {
#pragma unroll
              for (int i = 0; i < M; ++i) {
                constant_dB.values[i] += to_channels[i];
                constant_dC.values[i] += to_channels[M + i];
              }
            }
            if (varying_B || varying_C) {
              constexpr int kOthers = 32 / kLanes;  // channels of a warp
              const int other = thread % 32 / kLanes;
              sum_over_lanes<kLanes, kOthers>(to_channels);
              C* const to = own_part + position * 2 * kPadded +
                            first_sum<2 * M, kOthers>(other) * kLanes + lane;
              if (other < 2 * M) {
#pragma unroll
                for (int k = 0; k < kSums<2 * M, kOthers>; ++k) {
                  if (set > 0) to_channels[k] += to[k * kLanes];
                  to[k * kLanes] = to_channels[k];
                }
              }
            }
          }
          sum_over_lanes<1, kLanes>(s);
          sum_over_lanes<1, kLanes>(w);
          __syncwarp();  // all lanes have read this part of the rows
          if (lane >= Q) continue;
          const int at = row * kPitch + start + part + first_sum<Q, kLanes>(lane);
#pragma unroll
          for (int k = 0; k < kSums<Q, kLanes>; ++k) {
            const C u = row_u[at + k], dy = row_dy[at + k];
            const C ddelta = multiply_add(u, s[k], kLn2<C> * w[k]) * row_slope[at + k];
            sums[0] = multiply_add(dy, u, sums[0]);
            sums[1] += ddelta;
            row_u[at + k] = multiply_add(row_dt[at + k], s[k], skip * dy);
            row_slope[at + k] = ddelta;
          }
        }
      }

      // ---------------------------------------------------------- Store the gradients
      if (number == first_tile || tiling.sets > 1) {
        C all[2] = {sums[0], sums[1]};
        for (int bit = 1; bit < kLanes; bit *= 2) {
          all[0] += shuffle_xor(all[0], bit);
          all[1] += shuffle_xor(all[1], bit);
        }
        if (own && lane == 0) {
          static_cast<C*>(gradients.D)[in_row] = all[0];
          static_cast<C*>(gradients.delta_bias)[in_row] = all[1];
        }
        store_states(static_cast<C*>(gradients.A) + state_row, dA, valid);
        if (tiling.sets > 1) store_states(static_cast<C*>(args.carry) + state_row, g, valid);
        if constexpr (kConstant) {
          if (!varying_B) {
            store_states(static_cast<C*>(gradients.B) + state_row, constant_dB, valid);
          }
          if (!varying_C) {
            store_states(static_cast<C*>(gradients.C) + state_row, constant_dC, valid);
          }
        }
      }
      __syncthreads();
      const TileRun<Layout> stored_run(problem);  // computed again to save registers
      const int stored = stored_run.valid(block.end - first_channel, length - begin);
      const auto store = [&](const C* from, const Sequence& sequence) {
        const Run<C, R> values = get_run<R>(from, kPitch, stored_run);
        Run<T, R> run;
#pragma unroll
        for (int i = 0; i < R; ++i) run.set(i, values[i]);
        store_run(run, sequence, stored_run, block.batch, first_channel, begin, stored);
      };
      store(row_u, gradients.u);
      store(row_slope, gradients.delta);
      if (has_z) store(row_dz, gradients.z);
    }

    // ------------------------------------------------------------ Add the parts of the warps
    if (!varying_B && !varying_C) continue;
    const int64_t in_group = (block.batch * problem.groups + block.group) * tiling.parts;
    const int64_t first = ((in_group + block.number) * length + begin) * states;
    const int rows = static_cast<int>(min(length - begin, int64_t{kTile}));
    for (int i = thread; i < rows * states; i += kThreads) {
      const int p = i / states, n = i % states;
      const int from = p * 2 * kPadded + n % M * kLanes + n / M;
      C dB = 0, dC = 0;
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) {
        dB += all_parts[warp * Shared::kPart + from];
        dC += all_parts[warp * Shared::kPart + from + kPadded];
      }
      if (varying_B) static_cast<C*>(gradients.B)[first + i] = dB;
      if (varying_C) static_cast<C*>(gradients.C)[first + i] = dC;
    }
  }
}

}  // namespace gpuopt::selective
