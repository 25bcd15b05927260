// Input gradients from many output channels by col2im, the transpose of im2col (Chellapilla, Puri
// and Simard, "High Performance Convolutional Neural Networks for Document Processing"). A product
// is a pair (c, k) of an input channel and a tap.
//
//   columns[(c, k)][j] = sum over o of weight[o][(c, k)] * grad[o][j]         matrix product
//   to[c][j * stride + k * dilation - padding] += columns[(c, k)][j]          col2im
#pragma once

#include "conv1d/forward/expand.cuh"
#include "conv1d/input_gradient/col2im.h"

namespace gpuopt::conv1d {

// Loads four values of a row from position `at` on. Values outside the row are 0.
template <typename T>
__device__ __forceinline__ uint64_t load_edge_quad(const T* own, int32_t at, int32_t size) {
  Vec<T, kGradientQuad> vec;
#pragma unroll
  for (int i = 0; i < kGradientQuad; ++i) {
    vec.values[i] = load_if(own + i, static_cast<uint32_t>(at + i) < static_cast<uint32_t>(size));
  }
  uint64_t quad;
  memcpy(&quad, &vec, sizeof(quad));
  return quad;
}

// Columns on tensor cores: a warp's sums of 16 * kRows products at kPositions positions.
template <typename T, int kRows>
struct Col2imMatrices {
  using Tap = T;
  static constexpr int kProducts = 16 * kRows;
  static constexpr int kPositions = col2im_matrix_positions(kRows);
  static constexpr int kBlocks = col2im_blocks(kProducts);
  static constexpr int kStep = 16;  // channels per mma
  static constexpr int kParts = kPositions / 32;
  static constexpr int kAligned = kGradientQuad;

  float sums[kRows][kParts][4][4] = {};

  // The index of a channel's tap in shared memory. A thread's part of A is one vector there.
  // Columns of A and rows of B are permuted alike: 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 are channels 4
  // t to 4 t + 3.
  __device__ __forceinline__ static uint32_t position_of_tap(uint32_t channel, uint32_t product) {
    const uint32_t lane = product % 8 * 4 + channel % 16 / 4, e = channel % 4;
    const uint32_t matrix = channel / 16 * kRows + product / 16;
    return ((matrix * 32 + lane) * 4 + e / 2 * 2 + product / 8 % 2) * 2 + e % 2;
  }

  // Loads the quads of four channels, 32 * kPart positions behind `own`. The first `exist` of the
  // four channels exist.
  template <int kPart, bool kEdges>
  __device__ __forceinline__ static void load(uint64_t (&quads)[4], const T* own, int64_t pitch,
                                              int32_t exist, int32_t at, int32_t size) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const T* const from = own + e * pitch + 32 * kPart;
      if constexpr (kEdges) {
        quads[e] = load_edge_quad(from, at + 32 * kPart, e < exist ? size : 0);
      } else {
        quads[e] = load_word<uint64_t>(from, e < exist);
      }
    }
  }

  // Position 4 n + t of 32 is column n of mma t.
  __device__ __forceinline__ void multiply_add(const uint32_t (&a)[kRows][4], int part,
                                               const uint64_t (&quads)[4]) {
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      uint32_t b[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const auto low = static_cast<uint32_t>(quads[2 * half] >> (t / 2 * 32));
        const auto high = static_cast<uint32_t>(quads[2 * half + 1] >> (t / 2 * 32));
        b[half] = __byte_perm(low, high, t % 2 == 0 ? 0x5410 : 0x7632);
      }
#pragma unroll
      for (int m = 0; m < kRows; ++m) multiply_add_matrices<T>(sums[m][part][t], a[m], b);
    }
  }

  // `own` and `at` are the thread's first quad of the first channel.
  template <bool kEdges>
  __device__ __forceinline__ void add_channels(const uint4* taps, const T* own, int64_t pitch,
                                               uint32_t channels, int32_t at, int32_t size) {
    const uint32_t lane = threadIdx.x % 32, first = lane % 4 * 4;
    own += first * pitch;
#pragma unroll 1
    for (uint32_t begin = 0; begin < channels; begin += kStep) {
      const auto exist = static_cast<int32_t>(channels - begin) - static_cast<int32_t>(first);
      uint64_t quads[2][4];
      load<0, kEdges>(quads[0], own, pitch, exist, at, size);
      // At the ends of rows values are loaded one by one. Registers then suffice for one part only.
      if constexpr (kParts > 1 && !kEdges) load<1, kEdges>(quads[1], own, pitch, exist, at, size);
      uint32_t a[kRows][4];
#pragma unroll
      for (int m = 0; m < kRows; ++m) {
        const uint4 words = load_shared_whole(taps + m * 32 + lane);
        a[m][0] = words.x;
        a[m][1] = words.y;
        a[m][2] = words.z;
        a[m][3] = words.w;
      }
      multiply_add(a, 0, quads[0]);
      if constexpr (kParts > 1) {
        if constexpr (kEdges) load<1, kEdges>(quads[1], own, pitch, exist, at, size);
        multiply_add(a, 1, quads[1]);
      }
      own += kStep * pitch;
      taps += kRows * 32;
    }
  }

  // Adds channels whose gradient rows are `pitch` apart. `at` is the warp's first position.
  __device__ __forceinline__ void add(const Col2imArgs& args, const Tap* taps, const T* grads,
                                      int64_t pitch, uint32_t channels, int32_t at) {
    const auto lane = static_cast<int32_t>(threadIdx.x % 32);
    const int32_t size = args.grad_size;
    const int32_t position = at + lane / 4 * kGradientQuad;
    const auto* const vecs = reinterpret_cast<const uint4*>(taps);
    if (at >= 0 && at + kPositions <= size) {
      add_channels<false>(vecs, grads + position, pitch, channels, position, size);
    } else {
      add_channels<true>(vecs, grads + position, pitch, channels, position, size);
    }
  }

  // Stores a row per product, `pitch` values apart, from the warp's first position on.
  __device__ __forceinline__ void store(float* to, uint32_t pitch) const {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < kRows; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float* const row = to + (16 * m + 8 * half + lane / 4) * pitch + lane % 4 * 8;
#pragma unroll
        for (int p = 0; p < kParts; ++p) {
#pragma unroll
          for (int column = 0; column < 2; ++column) {
            const Vec<float, 4> vec{
                {sums[m][p][0][2 * half + column], sums[m][p][1][2 * half + column],
                 sums[m][p][2][2 * half + column], sums[m][p][3][2 * half + column]}};
            store_vec(row + 32 * p + 4 * column, vec);
          }
        }
      }
    }
  }
};

// Columns by multiply-adds without tensor cores: a thread has every 32nd of the warp's positions.
template <typename T, int kMostProducts>
struct Col2imLanes {
  using Tap = float;
  static constexpr int kProducts = kMostProducts;
  static constexpr int kPositions = kCol2imPositions;
  static constexpr int kParts = kPositions / 32;
  static constexpr int kAligned = 1;
  static constexpr int kBlocks = col2im_blocks(kProducts);
  static constexpr int kAtOnce = 4;  // channels in flight

  float sums[kParts][kProducts] = {};

  __device__ __forceinline__ static uint32_t position_of_tap(uint32_t channel, uint32_t product) {
    return channel * kProducts + product;
  }

  __device__ __forceinline__ void add(const Col2imArgs& args, const float* taps, const T* grads,
                                      int64_t pitch, uint32_t channels, int32_t at) {
    const auto lane = static_cast<int32_t>(threadIdx.x % 32);
    bool valid[kParts];
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      valid[p] = static_cast<uint32_t>(at + lane + 32 * p) < static_cast<uint32_t>(args.grad_size);
    }
    const T* own = grads + at + lane;
    struct Channels {
      T values[kAtOnce][kParts];
    };
    const auto load = [&](uint32_t begin) {
      Channels some;
#pragma unroll
      for (int c = 0; c < kAtOnce; ++c) {
#pragma unroll
        for (int p = 0; p < kParts; ++p) {
          some.values[c][p] = load_if(own + 32 * p, valid[p] && begin + c < channels);
        }
        own += pitch;
      }
      return some;
    };
    Channels next = load(0);
#pragma unroll 1
    for (uint32_t begin = 0; begin < channels; begin += kAtOnce) {
      const Channels some = next;
      next = load(begin + kAtOnce);
#pragma unroll
      for (int c = 0; c < kAtOnce; ++c) {
        if (begin + c >= channels) break;
#pragma unroll
        for (int q = 0; q < kProducts; q += 4) {
          const auto vec = vec_of<float>(load_shared_whole(
              reinterpret_cast<const uint4*>(taps + (begin + c) * kProducts + q)));
#pragma unroll
          for (int i = 0; i < 4; ++i) {
#pragma unroll
            for (int p = 0; p < kParts; ++p) {
              sums[p][q + i] =
                  multiply_add(vec.values[i], to_compute(some.values[c][p]), sums[p][q + i]);
            }
          }
        }
      }
    }
  }

  __device__ __forceinline__ void store(float* to, uint32_t pitch) const {
#pragma unroll
    for (int q = 0; q < kProducts; ++q) {
#pragma unroll
      for (int p = 0; p < kParts; ++p) to[q * pitch + threadIdx.x % 32 + 32 * p] = sums[p][q];
    }
  }
};

// A block computes some input channels of a group and loops over tiles of their positions.
template <typename T, typename Sums>
__global__ void __launch_bounds__(32 * kCol2imWarps, Sums::kBlocks)
    col2im_kernel(const __grid_constant__ Col2imArgs args) {
  using Tap = typename Sums::Tap;
  constexpr uint32_t kThreads = 32 * kCol2imWarps, Q = Sums::kProducts;
  extern __shared__ uint4 shared[];
  // For each position modulo the stride: the first tap that meets it, and this tap's distance in
  // strides.
  __shared__ int32_t first_taps[kCol2imMostStride], steps_of_tap[kCol2imMostStride];
  launch_dependents();
  uint32_t group = blockIdx.x;
  const uint32_t first_unit = args.unit_blocks.divmod(group);
  const uint32_t part = args.parts.divmod(group);
  const uint32_t warp = threadIdx.x / 32, splits = 1u << args.split_shift;
  const uint32_t split = warp % splits, row_part = warp / splits;
  const uint32_t first_channel = part * args.part_channels;
  const uint32_t in_channels = min(args.part_channels, args.in_channels - first_channel);
  const uint32_t products = in_channels * static_cast<uint32_t>(args.taps);
  const auto step = static_cast<int32_t>(args.step.divisor);
  auto* const taps = reinterpret_cast<Tap*>(shared);
  const uint32_t split_taps = args.stage_channels * Q;
  float* const made = reinterpret_cast<float*>(taps + splits * split_taps);
  for (int32_t rest = static_cast<int32_t>(threadIdx.x); rest < step; rest += kThreads) {
    first_taps[rest] = args.taps;
    steps_of_tap[rest] = 0;
  }
  __syncthreads();
  const int32_t tap_end = min(args.taps, args.tap_cycle);
  for (auto k = static_cast<int32_t>(threadIdx.x); k < tap_end; k += kThreads) {
    auto steps = static_cast<uint32_t>(k * args.dilation);
    const uint32_t rest = args.step.divmod(steps);
    first_taps[rest] = k;
    steps_of_tap[rest] = static_cast<int32_t>(steps);
  }
  grid_dependency_wait();

  const T* const weight = static_cast<const T*>(args.weight) + group * args.weight_group +
                          first_channel * args.weight_in;
  const T* bias = static_cast<const T*>(args.bias);
  if (bias != nullptr) {
    bias += (int64_t{group} * args.in_channels + first_channel) * args.bias_stride;
  }
  // Copies the taps of all splits' channels from `begin` on. Missing channels are 0.
  const auto stage = [&](uint32_t begin) {
#pragma unroll 8
    for (uint32_t i = threadIdx.x; i < splits * split_taps; i += kThreads) {
      const uint32_t product = i % Q, channel = i / Q;
      const uint32_t c = args.taps_div.div(product), out = begin * splits + channel;
      const uint32_t k = product - c * static_cast<uint32_t>(args.taps);
      const T value =
          load_if(weight + out * args.weight_out + c * args.weight_in + k * args.weight_tap,
                  product < products && out < args.out_channels);
      Tap* const to =
          taps + channel % splits * split_taps + Sums::position_of_tap(channel / splits, product);
      if constexpr (std::is_same_v<Tap, T>) {
        *to = value;
      } else {
        *to = to_compute(value);
      }
    }
  };
  // A split has every `splits`th channel. Channels that far apart are aligned alike.
  const uint32_t channels =
      split < args.out_channels ? (args.out_channels - split + splits - 1) / splits : 0;
  const bool at_once = args.stage_channels * splits >= args.out_channels;
  const int64_t pitch = splits * args.grad_channel;
  // Four values behind each row put the vectors of different threads into different banks.
  const uint32_t row_pitch = kCol2imWarps / splits * Sums::kPositions + 4;
#pragma unroll 1
  for (uint32_t unit = first_unit; unit < args.units; unit += args.unit_blocks.divisor) {
    uint32_t image = unit;
    const auto begin = static_cast<int32_t>(args.tiles.divmod(image) * args.tile_positions);
    // The first position of the gradient that a tap of the tile meets.
    const int32_t reach = begin + args.padding - (args.taps - 1) * args.dilation;
    const int32_t first = static_cast<int32_t>(args.step.div(
                              static_cast<uint32_t>(reach + (args.lead_steps + 1) * step - 1))) -
                          args.lead_steps;
    const T* const rows = static_cast<const T*>(args.grad) + image * args.grad_batch +
                          int64_t{group} * args.out_channels * args.grad_channel;
    const auto ahead_of = [&](uint32_t other) {
      const auto position = reinterpret_cast<uintptr_t>(rows + first) / sizeof(T) +
                            static_cast<uintptr_t>(other * args.grad_channel);
      return static_cast<int32_t>(position % Sums::kAligned);
    };
    const int32_t at = first - ahead_of(split) + static_cast<int32_t>(row_part * Sums::kPositions);
    const T* const grads = rows + split * args.grad_channel;
    // Columns.
    Sums sums;
#pragma unroll 1
    for (uint32_t some = 0; some * splits < args.out_channels; some += args.stage_channels) {
      if (!at_once || unit == first_unit) {
        __syncthreads();
        stage(some);
        __syncthreads();
      }
      if (some < channels) {
        sums.add(args, taps + split * split_taps, grads + some * pitch, pitch,
                 min(args.stage_channels, channels - some), at);
      }
    }

    __syncthreads();
    sums.store(made + split * Q * row_pitch + row_part * Sums::kPositions, row_pitch);
    __syncthreads();
    // Add up and store.
    const auto end = min(static_cast<int32_t>(args.tile_positions), args.to_size - begin);
    T* const to = static_cast<T*>(args.to) + image * args.to_batch +
                  (int64_t{group} * args.in_channels + first_channel) * args.to_channel + begin;
    // Neighbouring threads have positions `every` apart, so either all of them meet taps, or none.
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < args.tile_iterations.divisor * args.every; i += kThreads) {
      uint32_t rest_of_every = i;
      const auto iteration = static_cast<int32_t>(args.tile_iterations.divmod(rest_of_every));
      const int32_t position = iteration * args.every + static_cast<int32_t>(rest_of_every);
      if (position >= end) continue;
      auto steps = static_cast<uint32_t>(begin + position + args.padding + args.lead_steps * step);
      const uint32_t rest = args.step.divmod(steps);
      const int32_t first_tap = first_taps[rest];
      const int32_t first_under =
          static_cast<int32_t>(steps) - args.lead_steps - steps_of_tap[rest];
#pragma unroll 1
      for (uint32_t c = 0; c < in_channels; ++c) {
        float sum = bias == nullptr ? 0 : to_compute(bias[c * args.bias_stride]);
        int32_t under = first_under;
#pragma unroll 1
        for (int32_t k = first_tap; k < args.taps;
             k += args.tap_cycle, under -= args.position_step) {
          if (static_cast<uint32_t>(under) >= static_cast<uint32_t>(args.grad_size)) continue;
          const float* own =
              made + (c * static_cast<uint32_t>(args.taps) + k) * row_pitch + (under - first);
          for (uint32_t other = 0; other < splits; ++other) {
            sum += own[ahead_of(other)];
            own += Q * row_pitch;
          }
        }
        to[c * args.to_channel + position] = from_compute<T>(sum);
      }
    }
  }
}

template <typename T>
cudaError_t launch(const Col2imPlan& plan, void* to, cudaStream_t stream) {
  if constexpr (sizeof(T) == 8) {
    return cudaErrorInvalidValue;
  } else {
    auto args = plan.args;
    args.to = to;
    const auto start = [&](auto kernel) {
      return launch_kernel(kernel, plan.launch, stream, args);
    };
    if constexpr (sizeof(T) == 2) {
      if (plan.matrices) {
        return plan.products == 16   ? start(col2im_kernel<T, Col2imMatrices<T, 1>>)
               : plan.products == 32 ? start(col2im_kernel<T, Col2imMatrices<T, 2>>)
                                     : start(col2im_kernel<T, Col2imMatrices<T, 4>>);
      }
    }
    return plan.products == 8    ? start(col2im_kernel<T, Col2imLanes<T, 8>>)
           : plan.products == 16 ? start(col2im_kernel<T, Col2imLanes<T, 16>>)
                                 : start(col2im_kernel<T, Col2imLanes<T, 32>>);
  }
}

}  // namespace gpuopt::conv1d
