// Implicit GEMM on tensor cores (Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning",
// section 3). B is never stored: threads read its values by index from a tile of inputs.
// implicit_gemm_lanes.cuh has the kernel for f32.
//
//   A: taps of 16 channels     B: inputs of 8 positions            D: outputs
//   w[m][(c, k)]            x  x[c, i * stride + k * dilation]  =  y[m][i]
#pragma once

#include "conv1d/device/launch.cuh"
#include "conv1d/device/mma.cuh"
#include "conv1d/device/rows.cuh"
#include "conv1d/forward/implicit_gemm_lanes.cuh"

namespace gpuopt::conv1d {

// A warp computes kGemmPositions x 16 kRows outputs. A block loads its taps once and loops over
// tiles.
template <typename T, int kRows>
__global__ void __launch_bounds__(kThreads, gemm_blocks(kRows))
    implicit_gemm_kernel(const __grid_constant__ ImplicitGemmArgs args) {
  constexpr int N = kVecSize<T>, kParts = kGemmPositions / 8;
  constexpr uint32_t kChannels = 16 * kRows, kMadePitch = kChannels + N;
  extern __shared__ uint4 shared[];
  launch_dependents();
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, threads = blockDim.x;
  uint32_t group = blockIdx.x;
  const uint32_t first_tile = args.tile_blocks.divmod(group);
  const uint32_t part = args.parts.divmod(group);
  const uint32_t first_channel = part * kChannels;
  const uint32_t channels = min(kChannels, args.out_channels - first_channel);
  const uint32_t in_vecs = args.in_channels * args.row_vecs.divisor;
  // Rows of taps are an odd number of vectors apart, so that ldmatrix has no bank conflicts.
  const uint32_t steps = args.row_taps.divisor / 16, pitch_vecs = 2 * steps + 1;

  T* const taps = reinterpret_cast<T*>(shared);
  uint4* const vecs = shared + kChannels * pitch_vecs;
  // The offset of the input of each multiply-add (c, k) from its output's position. The four
  // offsets that a thread needs of each 16 are adjacent.
  auto* const offsets = reinterpret_cast<uint16_t*>(vecs + in_vecs);
  // The outputs of a tile overwrite its inputs. Their rows have the same alignment as in memory. If
  // rows are not contiguous, neighbours are channels.
  T* const made = reinterpret_cast<T*>(vecs);
  const auto ahead_of_row = [&](const T* row) { return args.from_rows ? offset_in_vec(row) : 0; };
  grid_dependency_wait();

  const int32_t positions = args.positions;
  const Rows<T> rows{args.first_vec, args.last_vec};
  // Starts copying inputs. wait_for_copies() waits for them.
  const auto copy = [&](const T* from, int32_t first) {
    for (uint32_t i = threadIdx.x; args.from_rows && i < in_vecs; i += threads) {
      uint32_t c = i;
      const auto q = static_cast<int32_t>(args.row_vecs.divmod(c));
      const T* const row = from + c * args.from_channel;
      const int32_t position = first - offset_in_vec(row + first) + q * N;
      if (position >= 0 && position <= args.from_size - N) {
        copy_async<uint4, 1>(vecs + i, reinterpret_cast<const uint4*>(row + position));
      } else {
        vecs[i] = rows.load_edge(row, position, args.from_size);
      }
    }
#pragma unroll 4
    for (uint32_t i = threadIdx.x; !args.from_rows && i < in_vecs * N; i += threads) {
      uint32_t c = i / N;
      const auto q = static_cast<int32_t>(args.row_vecs.divmod(c));
      const int32_t position = first + q * N + static_cast<int32_t>(i % N);
      reinterpret_cast<T*>(vecs)[i] =
          load_if(from + c * args.from_channel + position * args.from_stride,
                  static_cast<uint32_t>(position) < static_cast<uint32_t>(args.from_size));
    }
    for (uint32_t i = threadIdx.x; i < 16 * steps; i += threads) {
      // Thread q of four has multiply-adds 2 q, 2 q + 1, 2 q + 8 and 2 q + 9 of each 16.
      const uint32_t product = i / 16 * 16 + i / 4 % 4 * 2 + i / 2 % 2 * 8 + i % 2;
      uint32_t c = min(product, args.products - 1);
      const uint32_t k = args.taps_div.divmod(c);
      const auto ahead = static_cast<uint32_t>(ahead_of_row(from + c * args.from_channel + first));
      offsets[i] = static_cast<uint16_t>(c * args.row_vecs.divisor * N + ahead +
                                         k * static_cast<uint32_t>(args.dilation));
    }
  };
  const T* const weight = static_cast<const T*>(args.weight) + group * args.weight_group +
                          first_channel * args.weight_out;
  // Starts copying taps, sizeof(Some) bytes at a time. wait_for_copies() waits for them.
  const auto copy_taps = [&](auto some) {
    using Some = decltype(some);
    constexpr uint32_t kSome = sizeof(Some) / sizeof(T);
    for (uint32_t i = threadIdx.x; i < kChannels * 16 / kSome * steps; i += threads) {
      uint32_t m = kSome * i;
      const uint32_t product = args.row_taps.divmod(m);
      copy_async_if(reinterpret_cast<Some*>(taps + m * pitch_vecs * N + product),
                    reinterpret_cast<const Some*>(weight + int64_t{m} * args.weight_out + product),
                    m < channels && product < args.products);
    }
  };
  // Reads taps of any strides, two of a channel at a time.
  const auto read_taps = [&] {
    constexpr int kSome = kRows > 1 ? 8 : 4;  // loads in flight, limited by registers
    const uint32_t count = kChannels * 8 * steps;
    const auto position_of = [&](uint32_t i, uint32_t& product) {
      uint32_t m = 2 * i;
      product = args.row_taps.divmod(m);
      return m;
    };
#pragma unroll 1
    for (uint32_t begin = threadIdx.x; begin < count; begin += kSome * threads) {
      Vec<T, 2> some[kSome];
#pragma unroll
      for (int j = 0; j < kSome; ++j) {
        uint32_t product;
        const uint32_t m = position_of(begin + j * threads, product);
        uint32_t c = product;
        const uint32_t k = args.taps_div.divmod(c);
        const T* const tap =
            weight + int64_t{m} * args.weight_out + c * args.weight_in + k * args.weight_tap;
        // A channel's last tap is followed by the next channel's first.
        const int64_t next =
            k + 1 < args.taps_div.divisor ? args.weight_tap : args.weight_in - k * args.weight_tap;
        some[j].values[0] = load_if(tap, m < channels && product < args.products);
        some[j].values[1] = load_if(tap + next, m < channels && product + 1 < args.products);
      }
#pragma unroll
      for (int j = 0; j < kSome; ++j) {
        uint32_t product;
        const uint32_t m = position_of(begin + j * threads, product);
        if (m < kChannels) store_vec(taps + m * pitch_vecs * N + product, some[j]);
      }
    }
  };
  float bias[kRows][2] = {};
  if (args.bias != nullptr) {
#pragma unroll
    for (int i = 0; i < 2 * kRows; ++i) {
      const uint32_t m = 8 * i + lane / 4;
      const int64_t channel = int64_t{group} * args.out_channels + first_channel + m;
      bias[i / 2][i % 2] = to_compute(
          load_if(static_cast<const T*>(args.bias) + channel * args.bias_stride, m < channels));
    }
  }
  // Masks missing multiply-adds of the last 16. Their taps are 0, but inputs may be infinite.
  const auto valid = [&](uint32_t row) {
    const uint32_t product = 16 * (steps - 1) + row + 2 * (lane % 4);
    return (product < args.products ? 0xffffu : 0) |
           (product + 1 < args.products ? 0xffff0000u : 0);
  };
  const uint32_t last_masks[2] = {valid(0), valid(8)};

#pragma unroll 1
  for (uint32_t tile = first_tile; tile < args.all_tiles; tile += args.tile_blocks.divisor) {
    uint32_t image = tile;
    const int32_t begin = static_cast<int32_t>(args.row_tiles.divmod(image)) * positions;
    if (tile != first_tile) __syncthreads();  // the previous tile is stored
    // Load inputs and, once, taps.
    copy(static_cast<const T*>(args.from) + image * args.from_batch +
             int64_t{group} * args.in_channels * args.from_channel,
         begin * args.step - args.padding);
    if (tile == first_tile) {
      switch (args.tap_values) {
        case 8:
          copy_taps(uint4{});
          break;
        case 4:
          copy_taps(uint2{});
          break;
        case 2:
          copy_taps(uint32_t{});
          break;
        default:
          read_taps();
      }
    }
    wait_for_copies();
    __syncthreads();

    // Multiply.
    float sums[kRows][kParts][4] = {};
    const int32_t warp_begin = static_cast<int32_t>(warp) * kGemmPositions;
    const bool has_positions = warp_begin < positions;  // other warps only copy
    if (has_positions && begin + warp_begin < args.to_size) {
      // Column n of mma t is position 8 t + n.
      const T* const columns = reinterpret_cast<const T*>(vecs) +
                               (warp_begin + static_cast<int32_t>(lane / 4)) * args.step;
      const uint4* const a_vecs = shared + lane % 16 * pitch_vecs + lane / 16;
#pragma unroll 2
      for (uint32_t s = 0; s < steps; ++s) {
        const uint2 four = *reinterpret_cast<const uint2*>(offsets + 16 * s + 4 * (lane % 4));
        const uint32_t at[4] = {four.x & 0xffff, four.x >> 16, four.y & 0xffff, four.y >> 16};
        uint32_t b[kParts][2];
#pragma unroll
        for (int t = 0; t < kParts; ++t) {
          const T* const column = columns + 8 * t * args.step;
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const Vec<T, 2> pair{column[at[2 * half]], column[at[2 * half + 1]]};
            memcpy(&b[t][half], &pair, sizeof(pair));
          }
        }
        if (s + 1 == steps) {
#pragma unroll
          for (int i = 0; i < 2 * kParts; ++i) b[i / 2][i % 2] &= last_masks[i % 2];
        }
#pragma unroll
        for (int m = 0; m < kRows; ++m) {
          uint32_t a[4];
          load_fragment(a, a_vecs + m * 16 * pitch_vecs + 2 * s);
#pragma unroll
          for (int t = 0; t < kParts; ++t) multiply_add_matrices<T>(sums[m][t], a, b[t]);
        }
      }
    }
    __syncthreads();  // all inputs are read

    // Store, by way of shared memory.
#pragma unroll
    for (int i = 0; i < kRows * kParts * 4; ++i) {
      sums[i / 4 / kParts][i / 4 % kParts][i % 4] += bias[i / 4 / kParts][i % 4 / 2];
    }
    if (args.activation != Activation::kNone) {
#pragma unroll
      for (int i = 0; i < kRows * kParts; ++i)
        activate<T>(sums[i / kParts][i % kParts], args.activation);
    }
    T* const to = static_cast<T*>(args.to) + image * args.to_batch +
                  (int64_t{group} * args.out_channels + first_channel) * args.to_channel +
                  begin * args.to_stride;
    const int32_t size = min(positions, args.to_size - begin);
    if (!args.to_rows) {
#pragma unroll
      for (int i = 0; i < 2 * kRows; ++i) {
        if (!has_positions) break;
        T* const made_at = made +
                           (static_cast<uint32_t>(warp_begin) + 2 * (lane % 4)) * kMadePitch +
                           8 * i + lane / 4;
#pragma unroll
        for (int t = 0; t < kParts; ++t) {
          const auto pair = narrow<T, 2>(sums[i / 2][t] + i % 2 * 2);
          made_at[8 * t * kMadePitch] = pair.values[0];
          made_at[(8 * t + 1) * kMadePitch] = pair.values[1];
        }
      }
      __syncthreads();
      for (uint32_t i = threadIdx.x; i < static_cast<uint32_t>(size) * 2 * kRows; i += threads) {
        const uint32_t position = i / (2 * kRows), m = i % (2 * kRows) * N;
        T* const address = to + position * args.to_stride + m * args.to_channel;
        const auto vec = load_vec<T, N>(made + position * kMadePitch + m);
        if (args.to_vecs && m + N <= channels) {
          store_whole(address, vec);
        } else {
#pragma unroll
          for (uint32_t j = 0; j < N; ++j) {
            if (m + j < channels) address[j * args.to_channel] = vec.values[j];
          }
        }
      }
      continue;
    }
#pragma unroll
    for (int i = 0; i < 2 * kRows; ++i) {
      if (!has_positions) break;
      const uint32_t m = 8 * i + lane / 4;
      const int32_t ahead = offset_in_vec(to + int64_t{m} * args.to_channel);
      T* const made_at =
          made + m * args.made_vecs.divisor * N + 2 * (lane % 4) + warp_begin + ahead;
#pragma unroll
      for (int t = 0; t < kParts; ++t) {
        const auto pair = narrow<T, 2>(sums[i / 2][t] + i % 2 * 2);
        if (ahead % 2 == 0) {
          store_vec(made_at + 8 * t, pair);
        } else {
          made_at[8 * t] = pair.values[0];
          made_at[8 * t + 1] = pair.values[1];
        }
      }
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < channels * args.made_vecs.divisor; i += threads) {
      uint32_t m = i;
      const auto q = static_cast<int32_t>(args.made_vecs.divmod(m));
      T* const row = to + int64_t{m} * args.to_channel;
      const int32_t position = q * N - offset_in_vec(row);
      store_edge(row, position, size, load_vec<T, N>(made + i * N));
    }
  }
}

template <Half T>
auto kernel_of(const ImplicitGemmPlan& plan) {
  return plan.rows == 1   ? implicit_gemm_kernel<T, 1>
         : plan.rows == 2 ? implicit_gemm_kernel<T, 2>
         : plan.rows == 3 ? implicit_gemm_kernel<T, 3>
                          : implicit_gemm_kernel<T, 4>;
}
template <Single T>
auto kernel_of(const ImplicitGemmPlan& plan) {
  return plan.rows == 2   ? implicit_gemm_lanes_kernel<T, 2>
         : plan.rows == 4 ? implicit_gemm_lanes_kernel<T, 4>
                          : implicit_gemm_lanes_kernel<T, 8>;
}

}  // namespace gpuopt::conv1d
