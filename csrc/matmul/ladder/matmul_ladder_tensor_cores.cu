// The steps of matmul_ladder.h that multiply fragments on tensor cores (mma.sync).
#include "matmul/device/matmul_fragments.cuh"
#include "matmul/ladder/matmul_ladder_tiles.cuh"

namespace gpuopt::matmul {
namespace {

constexpr int kThreads = 256;  // 2 x 4 warps, each with 64 rows
constexpr int kTileRows = 128, kWarpRows = 64;

// [three_tf32]
constexpr int kTfColumns = 128, kTfSlice = 32, kTfStages = 3;
// Vectors of a row in shared memory. Threads of a warp read 8 rows of A, or 4 rows of B, at once.
constexpr int kTfPitchA = kTfSlice / 4 + 1, kTfPitchB = kTfColumns / 4 + 2;
struct TfSlice {
  uint4 a[kTileRows * kTfPitchA];
  uint4 b[kTfSlice * kTfPitchB];
};

template <bool kAligned>
__global__ void __launch_bounds__(kThreads)
    three_tf32_kernel(const __grid_constant__ Matrices<float> x) {
  auto* const stages = reinterpret_cast<TfSlice*>(matmul_memory);
  const Tile tile = tile_of<kTileRows, kTfColumns>(blockIdx.x, x.n);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row = warp / 4 * kWarpRows, column = warp % 4 * 32;  // of the warp in the tile
  float sums[4][4][4] = {};
  pipeline<kTfStages>(
      (x.k + kTfSlice - 1) / kTfSlice,
      [&](int slice, int stage) {
        const int k0 = slice * kTfSlice;
        copy_tile<kTileRows, kTfSlice / 4, kThreads, kAligned>(
            stages[stage].a, x.a + tile.row * x.a_pitch + k0, x.a_pitch, x.m - tile.row, x.k - k0,
            [](int i, int vec) { return i * kTfPitchA + vec; });
        copy_tile<kTfSlice, kTfColumns / 4, kThreads, kAligned>(
            stages[stage].b, x.b + k0 * x.b_pitch + tile.column, x.b_pitch, x.k - k0,
            x.n - tile.column, [](int k, int vec) { return k * kTfPitchB + vec; });
      },
      [&](int stage) {
        const uint4* const a_row = stages[stage].a + (row + lane % 16) * kTfPitchA + lane / 16;
        const auto* const b_first = reinterpret_cast<const uint32_t*>(stages[stage].b) +
                                    lane % 4 * (4 * kTfPitchB) + column + lane / 4;
        float slice_sums[4][4][4] = {};
#pragma unroll
        for (int k = 0; k < kTfSlice; k += 8) {
          uint32_t a_big[4][4], a_small[4][4];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            uint32_t words[4];
            load_matrices(words, a_row + 16 * i * kTfPitchA + k / 4);
#pragma unroll
            for (int q = 0; q < 4; ++q) {
              const Parts parts = parts_of(words[q]);
              a_big[i][q] = parts.big;
              a_small[i][q] = parts.small;
            }
          }
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            uint32_t b_big[2], b_small[2];
#pragma unroll
            for (int q = 0; q < 2; ++q) {
              const Parts parts = parts_of(b_first[(k + 4 * q) * (4 * kTfPitchB) + 8 * j]);
              b_big[q] = parts.big;
              b_small[q] = parts.small;
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) mma_tf32(slice_sums[i][j], a_small[i], b_big);
#pragma unroll
            for (int i = 0; i < 4; ++i) mma_tf32(slice_sums[i][j], a_big[i], b_small);
#pragma unroll
            for (int i = 0; i < 4; ++i) mma_tf32(slice_sums[i][j], a_big[i], b_big);
          }
        }
#pragma unroll
        for (int q = 0; q < 64; ++q)
          sums[q / 16][q / 4 % 4][q % 4] += slice_sums[q / 16][q / 4 % 4][q % 4];
      });
  store_fragments(sums, x.out, x.m, x.n, tile.row + row, tile.column + column);
  recompute_nan(sums, x.out, x.m, x.n, tile.row + row, tile.column + column, [&](int i, int j) {
    float sum = 0;
    for (int k = 0; k < x.k; ++k) sum = fmaf(x.a[i * x.a_pitch + k], x.b[k * x.b_pitch + j], sum);
    return sum;
  });
}
// [three_tf32]

// [ldmatrix]
// A block has 2 x 4 warps. Layout::at gives the index of a vector of a row in shared memory.
template <typename T, typename Layout, bool kAligned>
__global__ void __launch_bounds__(kThreads)
    fragments_kernel(const __grid_constant__ Matrices<T> x) {
  constexpr int kColumns = Layout::kColumns, kWarpColumns = kColumns / 4, kSlice = Layout::kSlice;
  constexpr int kAVecs = kSlice / 8, kBVecs = kColumns / 8;
  using Slice = typename Layout::Slice;
  auto* const stages = reinterpret_cast<Slice*>(matmul_memory);
  const Tile tile = tile_of<kTileRows, kColumns>(blockIdx.x, x.n);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row = warp / 4 * kWarpRows, column = warp % 4 * kWarpColumns;
  float sums[kWarpRows / 16][kWarpColumns / 8][4] = {};
  pipeline<Layout::kStages>(
      (x.k + kSlice - 1) / kSlice,
      [&](int slice, int stage) {
        const int k0 = slice * kSlice;
        copy_tile<kTileRows, kAVecs, kThreads, kAligned>(
            stages[stage].a, x.a + tile.row * x.a_pitch + k0, x.a_pitch, x.m - tile.row, x.k - k0,
            Layout::template at<kAVecs>);
        copy_tile<kSlice, kBVecs, kThreads, kAligned>(
            stages[stage].b, x.b + k0 * x.b_pitch + tile.column, x.b_pitch, x.k - k0,
            x.n - tile.column, Layout::template at<kBVecs>);
      },
      [&](int stage) {
#pragma unroll
        for (int k = 0; k < kSlice; k += 16) {
          uint32_t a[kWarpRows / 16][4];
#pragma unroll
          for (int i = 0; i < kWarpRows / 16; ++i) {
            load_matrices(a[i], stages[stage].a + Layout::template at<kAVecs>(
                                                      row + 16 * i + lane % 16, k / 8 + lane / 16));
          }
#pragma unroll
          for (int j = 0; j < kWarpColumns / 8; j += 2) {
            uint32_t b[4];  // two fragments
            load_matrices_transposed(
                b, stages[stage].b +
                       Layout::template at<kBVecs>(k + lane % 16, column / 8 + j + lane / 16));
#pragma unroll
            for (int i = 0; i < kWarpRows / 16; ++i) {
              mma_half<T>(sums[i][j], a[i], {b[0], b[1]});
              mma_half<T>(sums[i][j + 1], a[i], {b[2], b[3]});
            }
          }
        }
      });
  store_fragments(sums, x.out, x.m, x.n, tile.row + row, tile.column + column);
}

// Rows are one vector longer, so 8 neighbouring rows begin in different banks.
struct Padded {
  static constexpr int kColumns = 128, kSlice = 32, kStages = 2;
  template <int kVecs>
  __device__ static int at(int row, int vec) {
    return row * (kVecs + 1) + vec;
  }
  struct Slice {
    uint4 a[kTileRows * (kSlice / 8 + 1)];
    uint4 b[kSlice * (kColumns / 8 + 1)];
  };
};
// [ldmatrix]

// [swizzled]
// Vector v of row r lies at v ^ (r % 8):
//
//   row 0   0 1 2 3 4 5 6 7
//   row 1   1 0 3 2 5 4 7 6
//   row 2   2 3 0 1 6 7 4 5     8 rows of one v have 8 different positions
struct Swizzled {
  static constexpr int kColumns = 256, kSlice = 64, kStages = 3;
  template <int kVecs>
  __device__ static int at(int row, int vec) {
    return row * kVecs + (vec ^ row % 8);
  }
  struct Slice {
    uint4 a[kTileRows * (kSlice / 8)];
    uint4 b[kSlice * (kColumns / 8)];
  };
};
// [swizzled]

static_assert(kTfStages * sizeof(TfSlice) <= kThreeTf32Kb << 10);
static_assert(Swizzled::kStages * sizeof(Swizzled::Slice) <= kSwizzledKb << 10);

template <typename T, typename Layout>
cudaError_t start_fragments(const LadderProblem& p, cudaStream_t stream) {
  const bool aligned = has_aligned_operands(p);
  return launch_kernel(
      aligned ? fragments_kernel<T, Layout, true> : fragments_kernel<T, Layout, false>,
      {tiles_of(p, kTileRows, Layout::kColumns), kThreads,
       Layout::kStages * sizeof(typename Layout::Slice)},
      stream, matrices_of<T>(p));
}

template <typename Layout>
cudaError_t start_fragments_of_dtype(const LadderProblem& p, cudaStream_t stream) {
  return p.dtype == DType::kFloat16 ? start_fragments<__half, Layout>(p, stream)
                                    : start_fragments<__nv_bfloat16, Layout>(p, stream);
}

}  // namespace

cudaError_t three_tf32(const LadderProblem& p, Workspace&, cudaStream_t stream) {
  const bool aligned = has_aligned_operands(p);
  return launch_kernel(aligned ? three_tf32_kernel<true> : three_tf32_kernel<false>,
                       {tiles_of(p, kTileRows, kTfColumns), kThreads, kTfStages * sizeof(TfSlice)},
                       stream, matrices_of<float>(p));
}

cudaError_t ldmatrix(const LadderProblem& p, Workspace&, cudaStream_t stream) {
  return start_fragments_of_dtype<Padded>(p, stream);
}

cudaError_t swizzled(const LadderProblem& p, Workspace&, cudaStream_t stream) {
  return start_fragments_of_dtype<Swizzled>(p, stream);
}

}  // namespace gpuopt::matmul
