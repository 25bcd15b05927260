// The steps of matmul_ladder.h up to "vectors": from one output per thread to a block of outputs.
#include "matmul/ladder/matmul_ladder_tiles.cuh"

namespace gpuopt::matmul {
namespace {

using Floats = Matrices<float>;

// [naive]
// A block of 1024 threads has a tile of 32 x 32 outputs.
__device__ void store_dot(const Floats& x, int row, int column) {
  if (row >= x.m || column >= x.n) return;
  float sum = 0;
  for (int k = 0; k < x.k; ++k) sum += x.a[row * x.a_pitch + k] * x.b[k * x.b_pitch + column];
  x.out[int64_t{row} * x.n + column] = sum;
}

__global__ void naive_kernel(Floats x) {
  const Tile tile = tile_of<32, 32>(blockIdx.x, x.n);
  store_dot(x, tile.row + threadIdx.x % 32, tile.column + threadIdx.x / 32);
}
// [naive]

// [coalesced]
__global__ void coalesced_kernel(Floats x) {
  const Tile tile = tile_of<32, 32>(blockIdx.x, x.n);
  store_dot(x, tile.row + threadIdx.x / 32, tile.column + threadIdx.x % 32);
}
// [coalesced]

// [shared_tile]
__global__ void shared_tile_kernel(Floats x) {
  __shared__ float as[32][32], bs[32][32];  // as[row][k], bs[k][column]
  const Tile tile = tile_of<32, 32>(blockIdx.x, x.n);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row = tile.row + warp, column = tile.column + lane;
  float sum = 0;
  for (int k0 = 0; k0 < x.k; k0 += 32) {
    const bool in_a = row < x.m && k0 + lane < x.k, in_b = k0 + warp < x.k && column < x.n;
    as[warp][lane] = in_a ? x.a[row * x.a_pitch + k0 + lane] : 0.0f;
    bs[warp][lane] = in_b ? x.b[(k0 + warp) * x.b_pitch + column] : 0.0f;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 32; ++k) sum += as[warp][k] * bs[k][lane];
    __syncthreads();
  }
  if (row < x.m && column < x.n) x.out[int64_t{row} * x.n + column] = sum;
}
// [shared_tile]

// [output_column]
// A block has a tile of kTile x kTile outputs, and each of its threads kRows x kColumns of them.
template <int kTile, Spread kRows, Spread kColumns>
__device__ void multiply_outputs(const Floats& x) {
  constexpr int kAcross = kTile / kColumns.count, kThreads = kAcross * kTile / kRows.count;
  constexpr int kSlice = 8;
  __shared__ float as[kSlice][kTile + 1], bs[kSlice][kTile];
  const Tile tile = tile_of<kTile, kTile>(blockIdx.x, x.n);
  const int thread = threadIdx.x;
  const int row = thread / kAcross * kRows.vec, column = thread % kAcross * kColumns.vec;
  OutputBlock<kRows, kColumns> block;
  for (int k0 = 0; k0 < x.k; k0 += kSlice) {
#pragma unroll
    for (int q = thread; q < kTile * kSlice; q += kThreads) {
      const int k = q % kSlice, i = q / kSlice;
      const bool valid = tile.row + i < x.m && k0 + k < x.k;
      as[k][i] = valid ? x.a[(tile.row + i) * x.a_pitch + k0 + k] : 0.0f;
    }
#pragma unroll
    for (int q = thread; q < kTile * kSlice; q += kThreads) {
      const int k = q / kTile, j = q % kTile;
      const bool valid = k0 + k < x.k && tile.column + j < x.n;
      bs[k][j] = valid ? x.b[(k0 + k) * x.b_pitch + tile.column + j] : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kSlice; ++k) {
      float a[kRows.count], b[kColumns.count];
      load_values<kRows>(a, &as[k][row]);
      load_values<kColumns>(b, &bs[k][column]);
      block.multiply_add(a, b);
    }
    __syncthreads();
  }
  block.store(x.out, x.m, x.n, tile.row + row, tile.column + column);
}

__global__ void __launch_bounds__(512) output_column_kernel(const __grid_constant__ Floats x) {
  multiply_outputs<64, Spread{8, 8, 8}, Spread{1, 1, 1}>(x);
}
// [output_column]

// [output_block]
// The rows and the columns of a thread lie 16 apart, so a warp reads neighbours.
__global__ void __launch_bounds__(256) output_block_kernel(const __grid_constant__ Floats x) {
  multiply_outputs<128, Spread{8, 1, 16}, Spread{8, 1, 16}>(x);
}
// [output_block]

// [vectors]
// The values of a vector that lie in front of the end of the row; 0 for the others. The last row
// may end where its memory ends.
__device__ float4 load_row(const float* from, int left) {
  if (left >= 4) return *reinterpret_cast<const float4*>(from);
  float4 values = {};
  if (left > 0) values.x = from[0];
  if (left > 1) values.y = from[1];
  if (left > 2) values.z = from[2];
  return values;
}

__global__ void __launch_bounds__(256) vectors_kernel(const __grid_constant__ Floats x) {
  constexpr int kTile = 128, kSlice = 8;
  constexpr Spread kSpread{8, 4, 64};  // rows and columns of a thread
  __shared__ float as[kSlice][kTile + 4];
  __shared__ float bs[kSlice][kTile];
  const Tile tile = tile_of<kTile, kTile>(blockIdx.x, x.n);
  const int thread = threadIdx.x, row = thread / 16 * 4, column = thread % 16 * 4;
  const int a_row = thread / 2, a_k = thread % 2 * 4, b_k = thread / 32, b_column = thread % 32 * 4;
  OutputBlock<kSpread, kSpread> block;
  for (int k0 = 0; k0 < x.k; k0 += kSlice) {
    const float* const a_from = x.a + (tile.row + a_row) * x.a_pitch + k0 + a_k;
    const float* const b_from = x.b + (k0 + b_k) * x.b_pitch + tile.column + b_column;
    const float4 a4 = load_row(a_from, tile.row + a_row < x.m ? x.k - k0 - a_k : 0);
    const float4 b4 = load_row(b_from, k0 + b_k < x.k ? x.n - tile.column - b_column : 0);
    as[a_k][a_row] = a4.x;
    as[a_k + 1][a_row] = a4.y;
    as[a_k + 2][a_row] = a4.z;
    as[a_k + 3][a_row] = a4.w;
    *reinterpret_cast<float4*>(&bs[b_k][b_column]) = b4;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kSlice; ++k) {
      float a[8], b[8];
      load_values<kSpread>(a, &as[k][row]);
      load_values<kSpread>(b, &bs[k][column]);
      block.multiply_add(a, b);
    }
    __syncthreads();
  }
  block.store<true>(x.out, x.m, x.n, tile.row + row, tile.column + column);
}
// [vectors]

cudaError_t start(void (*kernel)(Floats), const LadderProblem& p, int tile, unsigned threads,
                  cudaStream_t stream) {
  return launch_kernel(kernel, {tiles_of(p, tile, tile), threads}, stream, matrices_of<float>(p));
}

}  // namespace

cudaError_t naive(const LadderProblem& p, Workspace&, cudaStream_t stream) {
  return start(naive_kernel, p, 32, 1024, stream);
}
cudaError_t coalesced(const LadderProblem& p, Workspace&, cudaStream_t stream) {
  return start(coalesced_kernel, p, 32, 1024, stream);
}
cudaError_t shared_tile(const LadderProblem& p, Workspace&, cudaStream_t stream) {
  return start(shared_tile_kernel, p, 32, 1024, stream);
}
cudaError_t output_column(const LadderProblem& p, Workspace&, cudaStream_t stream) {
  return start(output_column_kernel, p, 64, 512, stream);
}
cudaError_t output_block(const LadderProblem& p, Workspace&, cudaStream_t stream) {
  return start(output_block_kernel, p, 128, 256, stream);
}
cudaError_t vectors(const LadderProblem& p, Workspace&, cudaStream_t stream) {
  return start(vectors_kernel, p, 128, 256, stream);
}

}  // namespace gpuopt::matmul
