// The sums of col2im: columns on tensor cores, and without.
#pragma once

#include "conv1d/device/launch.cuh"
#include "conv1d/device/mma.cuh"
#include "conv1d/device/rows.cuh"
#include "conv1d/input_gradient/col2im.h"

namespace gpuopt::conv1d {

// Loads four values of a row from position `at` on. Values outside the row are 0.
template <typename T>
__device__ __forceinline__ uint64_t load_edge_quad(const T* values, int32_t at, int32_t size,
                                                   int64_t stride = 1) {
  Vec<T, kGradientQuad> vec;
#pragma unroll
  for (int i = 0; i < kGradientQuad; ++i) {
    vec.values[i] = load_if(values, static_cast<uint32_t>(at + i) < static_cast<uint32_t>(size));
    values += stride;
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
  static constexpr bool kHasParts = kProducts == kCol2imMatrixProducts;
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

  // Loads the quads of four channels, 32 * kPart positions behind `grads`. The first `exist` of the
  // four channels exist.
  template <int kPart, bool kEdges>
  __device__ __forceinline__ static void load(uint64_t (&quads)[4], const T* grads, int64_t pitch,
                                              int32_t exist, int32_t at, int32_t size) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const T* const from = grads + e * pitch + 32 * kPart;
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

  // `grads` and `at` are the thread's first quad of the first channel.
  template <bool kEdges>
  __device__ __forceinline__ void add_channels(const uint4* taps, const T* grads, int64_t pitch,
                                               uint32_t channels, int32_t at, int32_t size) {
    const uint32_t lane = threadIdx.x % 32, first = lane % 4 * 4;
    grads += first * pitch;
#pragma unroll 1
    for (uint32_t begin = 0; begin < channels; begin += kStep) {
      const auto exist = static_cast<int32_t>(channels - begin) - static_cast<int32_t>(first);
      uint64_t quads[2][4];
      load<0, kEdges>(quads[0], grads, pitch, exist, at, size);
      // At the ends of rows values are loaded one by one. Registers then suffice for one part only.
      if constexpr (kParts > 1 && !kEdges) load<1, kEdges>(quads[1], grads, pitch, exist, at, size);
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
        if constexpr (kEdges) load<1, kEdges>(quads[1], grads, pitch, exist, at, size);
        multiply_add(a, 1, quads[1]);
      }
      grads += kStep * pitch;
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
  static constexpr bool kHasParts = kProducts == kCol2imProducts;
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
    const T* row = grads + (at + lane) * args.grad_stride;
    struct Channels {
      T values[kAtOnce][kParts];
    };
    const auto load = [&](uint32_t begin) {
      Channels some;
#pragma unroll
      for (int c = 0; c < kAtOnce; ++c) {
#pragma unroll
        for (int p = 0; p < kParts; ++p) {
          some.values[c][p] =
              load_if(row + 32 * p * args.grad_stride, valid[p] && begin + c < channels);
        }
        row += pitch;
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

}  // namespace gpuopt::conv1d
