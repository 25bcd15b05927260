// The steps of matmul_ladder.h whose slices are copied asynchronously by threads, for float32.
#include "matmul/device/matmul_parts.cuh"
#include "matmul/ladder/matmul_ladder_tiles.cuh"

namespace gpuopt::matmul {
namespace {

using Floats = Matrices<float>;
constexpr int kThreads = 256;

// [double_buffer]
// A slice of both tiles in shared memory: a[k][row], b[k][column].
template <int kTileRows_, int kTileColumns_, int kSize_>
struct Slice {
  static constexpr int kTileRows = kTileRows_, kTileColumns = kTileColumns_, kSize = kSize_;
  float a[kSize][kTileRows + 4];
  float b[kSize][kTileColumns];
};

// Copies one slice after another. Rows of A become columns, so they are copied value by value. A
// warp copies 8 values of each of 4 rows: whole sectors of global memory, and 32 different banks.
// What does not change from slice to slice is computed once: it would cost issue slots.
template <typename Slice, bool kAligned>
class SliceCopies {
 public:
  __device__ __forceinline__ SliceCopies(const Floats& x, const Tile& tile)
      : a_(x.a + (tile.row + a_row_) * x.a_pitch + a_k_),
        b_(x.b + b_row_ * x.b_pitch + tile.column + b_column_),
        a_step_(kRowStep * x.a_pitch),
        b_pitch_(x.b_pitch),
        rows_left_(x.m - tile.row - a_row_),
        columns_left_(max(0, min(4, x.n - tile.column - b_column_))),
        a_left_(x.k - a_k_),
        b_left_(x.k - b_row_) {}

  // Copies the next slice.
  __device__ __forceinline__ void copy(Slice& to) {
    constexpr int kRowGroups = Slice::kTileRows / kRowStep;
#pragma unroll
    for (int i = 0; i < kRowGroups * Slice::kSize / 8; ++i) {
      const int row = i % kRowGroups, k = i / kRowGroups * 8;
      copy_async_if(&to.a[a_k_ + k][a_row_ + row * kRowStep], a_ + row * a_step_ + k,
                    rows_left_ > row * kRowStep && a_left_ > k);
    }
#pragma unroll
    for (int k = 0; k < Slice::kSize; k += kRowsOfB) {
      float* const to_vec = &to.b[b_row_ + k][b_column_];
      const float* const from = b_ + k * b_pitch_;
      const int left = b_left_ > k ? columns_left_ : 0;
      if constexpr (kAligned) {
        copy_async_if(reinterpret_cast<uint4*>(to_vec), reinterpret_cast<const uint4*>(from),
                      left > 0);
      } else {
#pragma unroll
        for (int j = 0; j < 4; ++j) copy_async_if(to_vec + j, from + j, j < left);
      }
    }
    a_ += Slice::kSize;
    b_ += Slice::kSize * b_pitch_;
    a_left_ -= Slice::kSize;
    b_left_ -= Slice::kSize;
  }

 private:
  // A block copies 32 rows of A, or kRowsOfB rows of B, at once.
  static constexpr int kRowStep = kThreads / 8, kVecs = Slice::kTileColumns / 4;
  static constexpr int kRowsOfB = kThreads / kVecs;

  const int a_row_ = threadIdx.x / 8, a_k_ = threadIdx.x % 8;
  const int b_row_ = threadIdx.x / kVecs, b_column_ = threadIdx.x % kVecs * 4;
  const float *a_, *b_;
  const int64_t a_step_, b_pitch_;
  const int rows_left_, columns_left_;
  int a_left_, b_left_;
};

using DoubleSlice = Slice<128, 128, 8>;

template <bool kAligned>
__global__ void __launch_bounds__(kThreads, 2)
    double_buffer_kernel(const __grid_constant__ Floats x) {
  constexpr Spread kSpread{8, 4, 64};
  auto* const stages = reinterpret_cast<DoubleSlice*>(matmul_memory);
  const Tile tile = tile_of<128, 128>(blockIdx.x, x.n);
  const int row = threadIdx.x / 16 * 4, column = threadIdx.x % 16 * 4;
  OutputBlock<kSpread, kSpread> block;
  SliceCopies<DoubleSlice, kAligned> copies(x, tile);
  pipeline<2>((x.k + DoubleSlice::kSize - 1) / DoubleSlice::kSize,
              [&](int, int stage) { copies.copy(stages[stage]); },
              [&](int stage) {
#pragma unroll
                for (int k = 0; k < DoubleSlice::kSize; ++k) {
                  float a[8], b[8];
                  load_values<kSpread>(a, &stages[stage].a[k][row]);
                  load_values<kSpread>(b, &stages[stage].b[k][column]);
                  block.multiply_add(a, b);
                }
              });
  block.store(x.out, x.m, x.n, tile.row + row, tile.column + column);
}
// [double_buffer]

// [warp_tiles]
// A warp has 8 x 4 threads, and a thread 8 x 16 outputs: two groups of rows, 32 apart, and four
// groups of columns, 16 apart. A warp reads 128 neighbouring bytes of A, or 64 of B, at once.
constexpr Spread kWarpRows{8, 4, 32}, kWarpColumns{16, 4, 16};
using WarpSlice = Slice<128, 256, 16>;
constexpr int kWarpStages = 3;

__device__ __forceinline__ void multiply_warp_slice(OutputBlock<kWarpRows, kWarpColumns>& block,
                                                    const WarpSlice& slice, int row, int column) {
  alignas(16) float a[2][8], b[2][16];
  const auto load = [&](int k, int to) {
    load_values<kWarpRows>(a[to], &slice.a[k][row]);
    load_values<kWarpColumns>(b[to], &slice.b[k][column]);
  };
  load(0, 0);
#pragma unroll 1  // 8 of k are 16 KB of code. More may not stay in the instruction cache
  for (int k0 = 0; k0 < WarpSlice::kSize; k0 += 8) {
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      if (k0 + k + 1 < WarpSlice::kSize) load(k0 + k + 1, (k + 1) % 2);
      block.multiply_add(a[k % 2], b[k % 2]);
    }
  }
}

template <bool kAligned>
__device__ __forceinline__ void multiply_warp_tiles(const Floats& x, const Tile& tile) {
  auto* const stages = reinterpret_cast<WarpSlice*>(matmul_memory);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row = warp / 4 * 64 + lane / 4 * 4, column = warp % 4 * 64 + lane % 4 * 4;
  OutputBlock<kWarpRows, kWarpColumns> block;
  SliceCopies<WarpSlice, kAligned> copies(x, tile);
  const auto copy = [&](int, int stage) { copies.copy(stages[stage]); };
  const auto multiply = [&](int stage) { multiply_warp_slice(block, stages[stage], row, column); };
  pipeline<kWarpStages>((x.k + WarpSlice::kSize - 1) / WarpSlice::kSize, copy, multiply);
  block.store(x.out, x.m, x.n, tile.row + row, tile.column + column);
}

template <bool kAligned>
__global__ void __launch_bounds__(kThreads) warp_tiles_kernel(const __grid_constant__ Floats x) {
  const Tile tile = tile_of<WarpSlice::kTileRows, WarpSlice::kTileColumns>(blockIdx.x, x.n);
  multiply_warp_tiles<kAligned>(x, tile);
}
// [warp_tiles]

// [split_k]
// Part p has the k from p * part_k on. Its sums are at partial[p].
template <bool kAligned>
__global__ void __launch_bounds__(kThreads)
    split_k_kernel(Floats x, float* partial, int part_k, int tiles) {
  const int part = blockIdx.x / tiles, k0 = part * part_k;
  const Tile tile = tile_of<WarpSlice::kTileRows, WarpSlice::kTileColumns>(blockIdx.x % tiles, x.n);
  x.a += k0;
  x.b += k0 * x.b_pitch;
  x.k = min(part_k, x.k - k0);
  x.out = partial + part * (int64_t{x.m} * x.n);
  multiply_warp_tiles<kAligned>(x, tile);
}
// [split_k]

static_assert(kWarpStages * sizeof(WarpSlice) <= kWarpTilesKb << 10);

unsigned warp_tiles_of(const LadderProblem& p) {
  return tiles_of(p, WarpSlice::kTileRows, WarpSlice::kTileColumns);
}

}  // namespace

cudaError_t double_buffer(const LadderProblem& p, Workspace&, cudaStream_t stream) {
  const bool aligned = is_aligned(p.b, p.b_pitch, p.n, p.dtype);
  return launch_kernel(aligned ? double_buffer_kernel<true> : double_buffer_kernel<false>,
                       {tiles_of(p, 128, 128), kThreads, 2 * sizeof(DoubleSlice)}, stream,
                       matrices_of<float>(p));
}

cudaError_t warp_tiles(const LadderProblem& p, Workspace&, cudaStream_t stream) {
  const bool aligned = is_aligned(p.b, p.b_pitch, p.n, p.dtype);
  return launch_kernel(aligned ? warp_tiles_kernel<true> : warp_tiles_kernel<false>,
                       {warp_tiles_of(p), kThreads, kWarpStages * sizeof(WarpSlice)}, stream,
                       matrices_of<float>(p));
}

// As many parts as give every SM a tile. A part has at least 256 of k, as its sums cost time too.
cudaError_t split_k(const LadderProblem& p, Workspace& workspace, cudaStream_t stream) {
  const int tiles = static_cast<int>(warp_tiles_of(p));
  const int most = min(p.sms / tiles, ceil_div(p.k, 256));
  if (most <= 1) return warp_tiles(p, workspace, stream);
  const int part_k = ceil_div(ceil_div(p.k, most), WarpSlice::kSize) * WarpSlice::kSize;
  const int parts = ceil_div(p.k, part_k);
  const int64_t outputs = int64_t{p.m} * p.n;
  auto* const partial = static_cast<float*>(workspace.allocate(parts * outputs * sizeof(float)));
  const bool aligned = is_aligned(p.b, p.b_pitch, p.n, p.dtype);
  const cudaError_t error = launch_kernel(
      aligned ? split_k_kernel<true> : split_k_kernel<false>,
      {static_cast<unsigned>(tiles * parts), kThreads, kWarpStages * sizeof(WarpSlice)}, stream,
      matrices_of<float>(p), partial, part_k, tiles);
  if (error != cudaSuccess) return error;
  return add_parts(partial, static_cast<float*>(p.out), outputs, parts, stream);
}

}  // namespace gpuopt::matmul
