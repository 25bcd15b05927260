// The steps of transpose_ladder.h. docs/ladder shows the code of a step between two equal marks in
// brackets.
#include "common/index.h"
#include "common/vec.cuh"
#include "transpose/ladder/transpose_ladder.h"

namespace gpuopt::transpose {
namespace {

constexpr int kBlock = 256;

// [read_coalesced]
__global__ void read_coalesced(const float* in, float* out, int64_t rows, int64_t columns) {
  const int64_t own = int64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (own >= rows * columns) return;
  const int64_t i = own / columns, j = own % columns;
  out[j * rows + i] = in[own];
}
// [read_coalesced]

// [write_coalesced]
__global__ void write_coalesced(const float* in, float* out, int64_t rows, int64_t columns) {
  const int64_t own = int64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (own >= rows * columns) return;
  const int64_t j = own / rows, i = own % rows;
  out[own] = in[i * columns + j];
}
// [write_coalesced]

// [shared_tile]
// Transposes the block's tile of 32 x 32. Each of the 8 warps moves every eighth row.
template <int kPitch>
__device__ void transpose_tile(const float* in, float* out, int64_t rows, int64_t columns) {
  __shared__ float tile[32][kPitch];
  const int64_t tiles = (columns + 31) / 32;
  const int64_t i0 = blockIdx.x / tiles * 32, j0 = blockIdx.x % tiles * 32;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int row = warp; row < 32; row += 8) {
    const int64_t i = i0 + row, j = j0 + lane;
    if (i < rows && j < columns) tile[row][lane] = in[i * columns + j];
  }
  __syncthreads();
  for (int column = warp; column < 32; column += 8) {
    const int64_t i = i0 + lane, j = j0 + column;
    if (i < rows && j < columns) out[j * rows + i] = tile[lane][column];
  }
}

__global__ void shared_tile(const float* in, float* out, int64_t rows, int64_t columns) {
  transpose_tile<32>(in, out, rows, columns);
}
// [shared_tile]

// [padded_tile]
__global__ void padded_tile(const float* in, float* out, int64_t rows, int64_t columns) {
  transpose_tile<33>(in, out, rows, columns);
}
// [padded_tile]

// [vectors]
// Row i of the tile begins at vector 16 * i + i / 4: a gap of one vector after every four rows.
//
// A warp stores 8 vectors (p = 0 ... 7) of each of 4 output rows (c = 0 ... 3). Output rows are
// columns of the tile. For vector p a thread reads a value from each of rows 4 * p to 4 * p + 3.
// Row 4 * p begins at vector 65 * p, so in one load thread (p, c) reads bank
//
//   (4 * 65 * p + c + constant) % 32 = (4 * p + c + constant) % 32
//
// and the 32 threads read 32 different banks.
__global__ void vectors(const float* in, float* out, int64_t rows, int64_t columns) {
  __shared__ float4 tile[64 * 16 + 16];
  const int64_t tiles = (columns + 63) / 64;
  const int64_t i0 = blockIdx.x / tiles * 64, j0 = blockIdx.x % tiles * 64;
  for (int q = threadIdx.x; q < 64 * 16; q += kBlock) {
    const int row = q / 16, vec = q % 16;
    const int64_t i = i0 + row, j = j0 + vec * 4;
    if (i < rows && j < columns) {
      tile[row * 16 + row / 4 + vec] = *reinterpret_cast<const float4*>(in + i * columns + j);
    }
  }
  __syncthreads();
  const float* values = reinterpret_cast<const float*>(tile);
  for (int q = threadIdx.x; q < 64 * 16; q += kBlock) {
    const int vec = q % 8 + q / 512 * 8, column = q / 8 % 64;
    const int64_t i = i0 + vec * 4, j = j0 + column;
    if (i >= rows || j >= columns) continue;
    const float* first = values + 4 * (vec * 65) + column;
    // The compiler would split the assignment of a float4 into four stores.
    store_whole(out + j * rows + i, Vec<float, 4>{first[0], first[64], first[128], first[192]});
  }
}
// [vectors]

using Kernel = void (*)(const float*, float*, int64_t, int64_t);

}  // namespace

cudaError_t ladder_transpose(int step, const LadderProblem& problem, cudaStream_t stream) {
  constexpr Kernel kKernels[] = {read_coalesced, write_coalesced, shared_tile, padded_tile,
                                 vectors};
  if (step < 0 || step > 4) return cudaErrorInvalidValue;
  const int64_t rows = problem.rows, columns = problem.columns, side = step == 4 ? 64 : 32;
  const int64_t blocks = step < 2 ? ceil_div(rows * columns, int64_t{kBlock})
                                  : ceil_div(rows, side) * ceil_div(columns, side);
  const Kernel kernel = kKernels[step];
  kernel<<<static_cast<unsigned>(blocks), kBlock, 0, stream>>>(problem.in, problem.out, rows,
                                                               columns);
  return cudaGetLastError();
}

}  // namespace gpuopt::transpose
