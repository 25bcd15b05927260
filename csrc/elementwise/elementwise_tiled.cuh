// The tiled kernel of the element-wise engine: inputs that are contiguous along another dimension
// than the output turn through shared memory.
#pragma once

#include <type_traits>

#include "common/async.cuh"
#include "common/index.h"
#include "common/vec.cuh"
#include "elementwise/elementwise_kernel.cuh"
#include "elementwise/elementwise_values.cuh"

namespace gpuopt::elementwise {

// A square tile in shared memory, written in vectors along one dimension (j) and read value by
// value along the other (i), both without bank conflicts. Packed: vector c of row i lies at
// position c ^ (i / N % 8) of its row, so 8 lanes that read one column for 8 neighbouring output
// vectors hit 8 different groups of banks. Value by value: rows are padded by one bank.
template <typename T, bool kPackedTiles>
struct Tile {
  // Single bytes move in eights: sixteen of them unpacked would take too many registers.
  static constexpr uint32_t N = !kPackedTiles ? 1 : sizeof(T) == 1 ? 8 : kVecSize<T>;
  static constexpr uint32_t kSide = sizeof(T) == 2 && kPackedTiles ? 128 : sizeof(T) <= 4 ? 64 : 32;
  static constexpr uint32_t kPitch = kSide + (kPackedTiles ? 0 : sizeof(T) < 4 ? 4 / sizeof(T) : 1);
  static constexpr uint32_t kVecs = kSide / N;  // along a side
  static constexpr uint32_t kValues = kSide * kPitch;
  static constexpr int kBytes = kValues * sizeof(T);
  static_assert(!kPackedTiles || kVecs % 8 == 0, "vectors are permuted in groups of 8");

  // Vector c of row i.
  static __device__ __forceinline__ uint32_t row_vec(uint32_t i, uint32_t c) {
    return i * kPitch + (kPackedTiles ? (c ^ (i / N % 8)) : c) * N;
  }
  // Column j of the rows p * N, p * N + 1, ...: the first; the others follow kPitch apart.
  static __device__ __forceinline__ uint32_t column(uint32_t p, uint32_t j) {
    return p * N * kPitch + (kPackedTiles ? (j / N) ^ (p % 8) : j / N) * N + j % N;
  }
};

// Tiles are numbered in groups of kTileGroup along j, so that the blocks in flight together cover
// a square of tiles and every operand is touched in runs of several tiles.
constexpr int kTileGroup = 16;
struct TileGrid {
  FastDiv plane;        // tiles in dimensions 0 (i) and 1 (j, along which turned inputs are dense)
  FastDiv group;        // tiles in a group
  FastDiv group_width;  // tiles of a group along j
  FastDiv last_width;   // tiles of the last group of a plane along j
  uint32_t last_group;
  uint32_t turned;  // bit k: input k goes through shared memory
  uint32_t packed;  // bit k: input k is read along i in aligned vectors, else value by value
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

  uint32_t rest = blockIdx.x;
  uint32_t group = grid.plane.divmod(rest);
  uint32_t tile_i = grid.group.divmod(group);
  const FastDiv width = group == grid.last_group ? grid.last_width : grid.group_width;
  const uint32_t tile_j = group * kTileGroup + width.divmod(tile_i);
  const uint32_t i0 = tile_i * kSide, j0 = tile_j * kSide;
  const uint32_t size_i = args.sizes[0].divisor, size_j = args.sizes[1].divisor;
  uint32_t offsets[F::kInputs + 1] = {};
  if (args.num_dims > 2) add_outer_offsets(args, 2, rest, offsets);

  // Where step s of this thread reads turned inputs: vector read_c of row read_i(s) ...
  const uint32_t read_c = threadIdx.x % kVecs;
  const auto read_i = [](int s) { return threadIdx.x / kVecs + s * (kThreads / kVecs); };
  // ... and which output vector it writes: write_p(s) along i at write_j(s). Neighbouring threads
  // write 8 vectors of a row, then the next row (value by value: a whole row).
  constexpr uint32_t kLine = kPackedTiles ? 8 : kVecs;
  const auto write_j = [](int s) { return (threadIdx.x + s * kThreads) / kLine % kSide; };
  const auto write_p = [](int s) {
    return (threadIdx.x + s * kThreads) / (kLine * kSide) * kLine + threadIdx.x % kLine;
  };

  const auto tile_of = [&grid](int k) {
    return reinterpret_cast<T*>(shared) + __popc(grid.turned & ((1u << k) - 1)) * Layout::kValues;
  };

  // First everything that is read in vectors (value by value: everything), all in flight together.
  // Vectors wait as words, which take half the registers of separate 16-bit values.
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
