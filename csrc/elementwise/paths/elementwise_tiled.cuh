// The tiled kernel of the element-wise engine: inputs that are contiguous along another dimension
// than the output are transposed through shared memory. Dimension i is contiguous in the output,
// dimension j in the transposed ("turned") inputs.
#pragma once

#include <type_traits>

#include "common/async.cuh"
#include "common/index.h"
#include "common/launch.cuh"
#include "common/vec.cuh"
#include "elementwise/device/elementwise_values.cuh"
#include "elementwise/paths/elementwise_kernel.cuh"

namespace gpuopt::elementwise {

// A square tile in shared memory. It is written in vectors along j and read value by value along i,
// both without bank conflicts. With kPackedTiles, row i stores its vector c at position
// c ^ (i / N % 8). Eight neighbouring threads read one column in rows N apart, so they hit eight
// different groups of banks (README.md has a drawing). Otherwise rows are padded by one bank.
template <typename T, bool kPackedTiles>
struct Tile {
  static constexpr TileShape kShape{sizeof(T), kPackedTiles};
  static constexpr uint32_t N = kShape.values, kSide = kShape.side, kPitch = kShape.pitch;
  static constexpr uint32_t kVecs = kSide / N;  // vectors along a side
  static constexpr uint32_t kValues = kSide * kPitch;
  static_assert(!kPackedTiles || kVecs % 8 == 0, "vectors are permuted in groups of 8");

  // The position of vector c of row i.
  static __device__ __forceinline__ uint32_t row_vec(uint32_t i, uint32_t c) {
    return i * kPitch + (kPackedTiles ? (c ^ (i / N % 8)) : c) * N;
  }
  // The position of column j in row p * N. Rows p * N + 1, ... p * N + N - 1 follow kPitch apart.
  static __device__ __forceinline__ uint32_t column(uint32_t p, uint32_t j) {
    return p * N * kPitch + (kPackedTiles ? (j / N) ^ (p % 8) : j / N) * N + j % N;
  }
};

template <typename F, typename T, bool kPackedTiles, int kThreads>
__global__ void __launch_bounds__(kThreads)
    tiled_kernel(const F f, const __grid_constant__ StridedArgs<F::kInputs + 1> args,
                 const TileGrid grid) {
  using Layout = Tile<T, kPackedTiles>;
  constexpr uint32_t N = Layout::N, kSide = Layout::kSide, kVecs = Layout::kVecs;
  constexpr int kSteps = kSide * kVecs / kThreads;
  static_assert(kSteps * kThreads == kSide * kVecs && kThreads % kVecs == 0);
  extern __shared__ uint4 shared[];
  launch_dependents();

  // Find the block's tile.
  uint32_t rest = blockIdx.x;
  uint32_t group = grid.plane.divmod(rest);
  uint32_t tile_i = grid.group.divmod(group);
  const FastDiv width = group == grid.last_group ? grid.last_width : grid.group_width;
  const uint32_t tile_j = group * kTileGroup + width.divmod(tile_i);
  const uint32_t i0 = tile_i * kSide, j0 = tile_j * kSide;
  const uint32_t size_i = args.sizes[0].divisor, size_j = args.sizes[1].divisor;
  uint32_t offsets[F::kInputs + 1] = {};
  if (args.num_dims > 2) add_outer_offsets(args, 2, rest, offsets);
  grid_dependency_wait();

  // In iteration s a thread reads vector read_c of row read_i(s) of every transposed input.
  const uint32_t read_c = threadIdx.x % kVecs;
  const auto read_i = [](int s) { return threadIdx.x / kVecs + s * (kThreads / kVecs); };
  // In iteration s it writes the output vector at write_p(s) along i and at write_j(s) along j.
  // Eight neighbouring threads write one row, the next eight threads the next row. Value by value,
  // neighbouring threads write a whole row.
  constexpr uint32_t kLine = kPackedTiles ? 8 : kVecs;
  const auto write_j = [](int s) { return (threadIdx.x + s * kThreads) / kLine % kSide; };
  const auto write_p = [](int s) {
    return (threadIdx.x + s * kThreads) / (kLine * kSide) * kLine + threadIdx.x % kLine;
  };

  const auto tile_of = [&grid](int k) {
    return reinterpret_cast<T*>(shared) + __popc(grid.turned & ((1u << k) - 1)) * Layout::kValues;
  };

  // Load everything that is read in vectors (value by value: everything), all in flight together.
  // Vectors are held as 32-bit words, which need half the registers of separate 16-bit values.
  using Words = Vec<uint32_t, sizeof(Vec<T, N>) / sizeof(uint32_t)>;
  using Waiting = std::conditional_t<kPackedTiles, Words, Vec<T, N>>;
  Waiting waiting[kSteps][F::kInputs];
#pragma unroll
  for (int k = 0; k < F::kInputs; ++k) {
    const uint32_t stride_i = args.strides[k + 1][0], stride_j = args.strides[k + 1][1];
    const T* const data =
        static_cast<const T*>(args.data[k + 1]) + offsets[k + 1] + i0 * stride_i + j0 * stride_j;
    if (grid.turned >> k & 1) {
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        const uint32_t i = read_i(s), j = read_c * N;
        if (i0 + i >= size_i || j0 + j >= size_j) continue;
        const T* const from = data + i * stride_i + j * stride_j;
        if constexpr (kPackedTiles) {
          copy_async<T, N>(tile_of(k) + Layout::row_vec(i, read_c), from);
        } else {
          waiting[s][k].values[0] = *from;
        }
      }
    } else if (!kPackedTiles || (grid.packed >> k & 1)) {
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        const uint32_t i = write_p(s) * N, j = write_j(s);
        if (i0 + i >= size_i || j0 + j >= size_j) continue;
        waiting[s][k] = *reinterpret_cast<const Waiting*>(data + i * stride_i + j * stride_j);
      }
    }
  }
  if constexpr (kPackedTiles) {
    wait_for_copies();
  } else {
#pragma unroll
    for (int k = 0; k < F::kInputs; ++k) {
      if (!(grid.turned >> k & 1)) continue;
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        tile_of(k)[Layout::row_vec(read_i(s), read_c)] = waiting[s][k].values[0];
      }
    }
  }
  __syncthreads();

  // Read columns of the transposed tiles, and store rows of the output.
  T* const out = static_cast<T*>(args.data[0]) + offsets[0] + i0 + j0 * args.strides[0][1];
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const uint32_t i = write_p(s) * N, j = write_j(s);
    if (i0 + i >= size_i || j0 + j >= size_j) continue;
    Vec<T, N> in[F::kInputs];
#pragma unroll
    for (int k = 0; k < F::kInputs; ++k) {
      if (grid.turned >> k & 1) {
        const T* const column = tile_of(k) + Layout::column(write_p(s), j);
#pragma unroll
        for (int e = 0; e < N; ++e) in[k].values[e] = column[e * Layout::kPitch];
      } else if (!kPackedTiles || (grid.packed >> k & 1)) {
        in[k] = *reinterpret_cast<const Vec<T, N>*>(&waiting[s][k]);
      } else {
        const uint32_t stride_i = args.strides[k + 1][0];
        const T* const from = static_cast<const T*>(args.data[k + 1]) + offsets[k + 1] +
                              (i0 + i) * stride_i + (j0 + j) * args.strides[k + 1][1];
#pragma unroll
        for (int e = 0; e < N; ++e) in[k].values[e] = from[e * stride_i];
      }
    }
    store_vec(out + i + j * args.strides[0][1], apply<F, T, N>(f, in));
  }
}

}  // namespace gpuopt::elementwise
