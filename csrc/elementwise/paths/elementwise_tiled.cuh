// The tiled kernels of the element-wise engine: inputs that are contiguous along another dimension
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

// The tile of a block: its first element, and the offsets of the operands in dimensions 2 and
// above.
template <int kOperands>
struct TileOrigin {
  uint32_t i0, j0;
  uint32_t offsets[kOperands] = {};

  __device__ __forceinline__ TileOrigin(const StridedArgs<kOperands>& args, const TileGrid& grid,
                                        uint32_t side_i, uint32_t side_j) {
    uint32_t rest = blockIdx.x;
    uint32_t group = grid.plane.divmod(rest);
    uint32_t tile_i = grid.group.divmod(group);
    const FastDiv width = group == grid.last_group ? grid.last_width : grid.group_width;
    const uint32_t tile_j = group * kTileGroup + width.divmod(tile_i);
    i0 = tile_i * side_i;
    j0 = tile_j * side_j;
    if (args.num_dims > 2) add_outer_offsets(args, 2, rest, offsets);
  }
};

// The tile of input k, counted among the turned inputs.
__device__ __forceinline__ int tile_of(const TileGrid& grid, int k) {
  return __popc(grid.turned & ((1u << k) - 1));
}

// ---------------------------------------------------------------- in vectors

// A square tile in shared memory. It is written in vectors along j and read value by value along i,
// both without bank conflicts. Row i stores its vector c at position c ^ (i / N % 8). Eight
// neighbouring threads read one column in rows N apart, so they hit eight different groups of banks
// (README.md has a drawing).
template <typename T>
struct Tile {
  static constexpr TileShape kShape{sizeof(T), true, 0};
  static constexpr uint32_t N = kShape.values, kSide = kShape.side_i, kPitch = kShape.pitch;
  static constexpr uint32_t kVecs = kSide / N;  // vectors along a side
  static constexpr uint32_t kValues = kSide * kPitch;
  static_assert(kVecs % 8 == 0, "vectors are permuted in groups of 8");

  // The position of vector c of row i.
  static __device__ __forceinline__ uint32_t row_vec(uint32_t i, uint32_t c) {
    return i * kPitch + (c ^ (i / N % 8)) * N;
  }
  // The position of column j in row p * N. Rows p * N + 1, ... p * N + N - 1 follow kPitch apart.
  static __device__ __forceinline__ uint32_t column(uint32_t p, uint32_t j) {
    return p * N * kPitch + ((j / N) ^ (p % 8)) * N + j % N;
  }
};

template <typename F, typename T, int kThreads>
__global__ void __launch_bounds__(kThreads)
    packed_tiles_kernel(const F f, const __grid_constant__ StridedArgs<F::kInputs + 1> args,
                        const TileGrid grid) {
  using Layout = Tile<T>;
  constexpr uint32_t N = Layout::N, kSide = Layout::kSide, kVecs = Layout::kVecs;
  constexpr int kSteps = kSide * kVecs / kThreads;
  static_assert(kSteps * kThreads == kSide * kVecs && kThreads % kVecs == 0);
  extern __shared__ uint4 shared[];
  T* const tiles = reinterpret_cast<T*>(shared);
  launch_dependents();

  const TileOrigin origin(args, grid, kSide, kSide);
  const uint32_t i0 = origin.i0, j0 = origin.j0;
  const uint32_t size_i = args.sizes[0].divisor, size_j = args.sizes[1].divisor;
  grid_dependency_wait();

  // In iteration s a thread reads vector read_c of row read_i(s) of every transposed input.
  const uint32_t read_c = threadIdx.x % kVecs;
  const auto read_i = [](int s) { return threadIdx.x / kVecs + s * (kThreads / kVecs); };
  // In iteration s it writes the output vector at write_p(s) along i and at write_j(s) along j.
  // Eight neighbouring threads write one row, the next eight threads the next row.
  constexpr uint32_t kLine = 8;
  const auto write_j = [](int s) { return (threadIdx.x + s * kThreads) / kLine % kSide; };
  const auto write_p = [](int s) {
    return (threadIdx.x + s * kThreads) / (kLine * kSide) * kLine + threadIdx.x % kLine;
  };

  // Load everything that is read in vectors, all in flight together. Vectors are held as 32-bit
  // words, which need half the registers of separate 16-bit values.
  using Waiting = Vec<uint32_t, sizeof(Vec<T, N>) / sizeof(uint32_t)>;
  Waiting waiting[kSteps][F::kInputs];
#pragma unroll
  for (int k = 0; k < F::kInputs; ++k) {
    const uint32_t stride_i = args.strides[k + 1][0], stride_j = args.strides[k + 1][1];
    const T* const data = static_cast<const T*>(args.data[k + 1]) + origin.offsets[k + 1] +
                          i0 * stride_i + j0 * stride_j;
    if (grid.turned >> k & 1) {
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        const uint32_t i = read_i(s), j = read_c * N;
        if (i0 + i >= size_i || j0 + j >= size_j) continue;
        copy_async<T, N>(tiles + tile_of(grid, k) * Layout::kValues + Layout::row_vec(i, read_c),
                         data + i * stride_i + j * stride_j);
      }
    } else if (grid.packed >> k & 1) {
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        const uint32_t i = write_p(s) * N, j = write_j(s);
        if (i0 + i >= size_i || j0 + j >= size_j) continue;
        waiting[s][k] = *reinterpret_cast<const Waiting*>(data + i * stride_i + j * stride_j);
      }
    }
  }
  wait_for_copies();
  __syncthreads();

  // Read columns of the transposed tiles, and store rows of the output.
  T* const out = static_cast<T*>(args.data[0]) + origin.offsets[0] + i0 + j0 * args.strides[0][1];
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const uint32_t i = write_p(s) * N, j = write_j(s);
    if (i0 + i >= size_i || j0 + j >= size_j) continue;
    Vec<T, N> in[F::kInputs];
#pragma unroll
    for (int k = 0; k < F::kInputs; ++k) {
      if (grid.turned >> k & 1) {
        const T* const column =
            tiles + tile_of(grid, k) * Layout::kValues + Layout::column(write_p(s), j);
#pragma unroll
        for (int e = 0; e < N; ++e) in[k].values[e] = column[e * Layout::kPitch];
      } else if (grid.packed >> k & 1) {
        in[k] = *reinterpret_cast<const Vec<T, N>*>(&waiting[s][k]);
      } else {
        const uint32_t stride_i = args.strides[k + 1][0];
        const T* const from = static_cast<const T*>(args.data[k + 1]) + origin.offsets[k + 1] +
                              (i0 + i) * stride_i + (j0 + j) * args.strides[k + 1][1];
#pragma unroll
        for (int e = 0; e < N; ++e) in[k].values[e] = from[e * stride_i];
      }
    }
    store_vec(out + i + j * args.strides[0][1], apply<F, T, N>(f, in));
  }
}

// ---------------------------------------------------------------- value by value

// The iterations of a thread.
template <typename T, int kThreads>
constexpr int kValueSteps = TileShape::tile_values(sizeof(T)) / kThreads;

// A thread reads one column j of the turned inputs, and writes one column i of the output. Its
// addresses then advance by constants: with index arithmetic for every value, the kernel waits for
// instructions. The tile's rows have grid.pitch values.
//
//   27 columns j, 256 threads: the tile has 128 rows i
//   threads   0 - 26   27 - 53   54 - 80   ...   216 - 242                  243 - 255
//   read      row 0    row 1     row 2     ...   row 8, then 9 rows on      nothing
//   threads   0 - 127            128 - 255
//   write     column 0           column 1, then 2 columns on
template <typename F, typename T, int kThreads>
__global__ void __launch_bounds__(kThreads)
    value_tiles_kernel(const F f, const __grid_constant__ StridedArgs<F::kInputs + 1> args,
                       const TileGrid grid) {
  constexpr int kSteps = kValueSteps<T, kThreads>;
  extern __shared__ uint4 shared[];
  launch_dependents();

  const uint32_t side_i = grid.side_i.divisor, side_j = grid.side_j.divisor;
  const TileOrigin origin(args, grid, side_i, side_j);
  const uint32_t i0 = origin.i0, j0 = origin.j0;
  const uint32_t end_i = min(args.sizes[0].divisor - i0, side_i);
  const uint32_t end_j = min(args.sizes[1].divisor - j0, side_j);
  // In iteration s a thread reads row read_i + s * read_rows of a turned input, if s is less than
  // reads, and writes the output at write_j + s * write_rows along j.
  const uint32_t read_rows = grid.read_rows.divisor, write_rows = grid.side_i.div(kThreads);
  uint32_t read_i = threadIdx.x, write_j = threadIdx.x;
  const uint32_t read_j = grid.side_j.divmod(read_i), write_i = grid.side_i.divmod(write_j);
  const bool has_column = read_i < read_rows && read_i < end_i && read_j < end_j;
  const int reads = has_column ? grid.read_rows.div(end_i - read_i - 1) + 1 : 0;
  const int writes =
      write_i < end_i && write_j < end_j ? (end_j - write_j - 1) / write_rows + 1 : 0;
  grid_dependency_wait();

  // Load all values, all in flight together.
  T waiting[F::kInputs][kSteps];
#pragma unroll
  for (int k = 0; k < F::kInputs; ++k) {
    const uint32_t stride_i = args.strides[k + 1][0], stride_j = args.strides[k + 1][1];
    const bool turned = grid.turned >> k & 1;
    const uint32_t i = turned ? read_i : write_i, j = turned ? read_j : write_j;
    const int count = turned ? reads : writes;
    const char* from = reinterpret_cast<const char*>(static_cast<const T*>(args.data[k + 1]) +
                                                     origin.offsets[k + 1] + (i0 + i) * stride_i +
                                                     (j0 + j) * stride_j);
    const int64_t step =
        (turned ? int64_t{read_rows} * stride_i : int64_t{write_rows} * stride_j) * sizeof(T);
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if (s < count) waiting[k][s] = *reinterpret_cast<const T*>(from);
      from += step;
    }
  }
  // Exchange the values of turned inputs.
  const uint32_t values = side_i * grid.pitch;
  T* const tiles = reinterpret_cast<T*>(kept_in_register(shared));
#pragma unroll
  for (int k = 0; k < F::kInputs; ++k) {
    if (!(grid.turned >> k & 1)) continue;
    T* to = tiles + tile_of(grid, k) * values + read_i * grid.pitch + read_j;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if (s < reads) *to = waiting[k][s];
      to += read_rows * grid.pitch;
    }
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < F::kInputs; ++k) {
    if (!(grid.turned >> k & 1)) continue;
    const T* from = tiles + tile_of(grid, k) * values + write_i * grid.pitch + write_j;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if (s < writes) waiting[k][s] = *from;
      from += write_rows;
    }
  }

  char* to = reinterpret_cast<char*>(static_cast<T*>(args.data[0]) + origin.offsets[0] + i0 +
                                     write_i + (j0 + write_j) * args.strides[0][1]);
  const int64_t step = int64_t{write_rows} * args.strides[0][1] * sizeof(T);
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    if (s < writes) {
      Vec<T, 1> in[F::kInputs];
#pragma unroll
      for (int k = 0; k < F::kInputs; ++k) in[k].values[0] = waiting[k][s];
      *reinterpret_cast<T*>(to) = apply<F, T, 1>(f, in).values[0];
    }
    to += step;
  }
}

}  // namespace gpuopt::elementwise
