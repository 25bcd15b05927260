// The steps of conv1d_ladder.h. docs/ladder shows the code of a step between two equal marks in
// brackets.
#include "common/index.h"
#include "common/vec.cuh"
#include "conv1d/ladder/conv1d_ladder.h"

namespace gpuopt::conv1d {
namespace {

constexpr int kThreads = 256;

// How rows are split into tiles. A block computes a tile.
struct Tiles {
  int64_t of_row, first;  // tiles of a row; the tile of the launch's first block
};

// The tile of a block: its row of the input and of the output, and its first position in the row.
struct Tile {
  const float* in;
  float* out;
  int64_t begin;
};

__device__ Tile tile_of_block(const LadderProblem& problem, const Tiles& tiles, int outputs) {
  const int64_t tile = tiles.first + blockIdx.x, row = tile / tiles.of_row;
  return {problem.in + row * problem.size, problem.out + row * problem.size,
          (tile - row * tiles.of_row) * outputs};
}

// Beyond the ends of a row are zeros. They are multiplied like any value, as in the production
// operator.
__device__ float value_at(const float* row, int64_t position, int64_t size) {
  return position >= 0 && position < size ? row[position] : 0.f;
}

// [global_memory]
__global__ void global_memory(LadderProblem problem, Tiles tiles) {
  const Tile tile = tile_of_block(problem, tiles, kThreads);
  const int64_t position = tile.begin + threadIdx.x;
  if (position >= problem.size) return;
  float sum = 0.f;
  for (int64_t k = 0; k < problem.taps; ++k) {
    sum += problem.weight[k] * value_at(tile.in, position + k - problem.taps / 2, problem.size);
  }
  tile.out[position] = sum;
}
// [global_memory]

// [constant_taps]
__constant__ float constant_weight[kMostTaps];

__global__ void constant_taps(LadderProblem problem, Tiles tiles) {
  const Tile tile = tile_of_block(problem, tiles, kThreads);
  const int64_t position = tile.begin + threadIdx.x;
  if (position >= problem.size) return;
  const int taps = static_cast<int>(problem.taps);
  float sum = 0.f;
  for (int k = 0; k < taps; ++k) {
    sum += constant_weight[k] * value_at(tile.in, position + k - taps / 2, problem.size);
  }
  tile.out[position] = sum;
}
// [constant_taps]

// [shared_tile]
__global__ void shared_tile(LadderProblem problem, Tiles tiles) {
  __shared__ float values[kThreads + kMostTaps - 1];
  const Tile tile = tile_of_block(problem, tiles, kThreads);
  const int64_t position = tile.begin + threadIdx.x;
  const int thread = static_cast<int>(threadIdx.x), taps = static_cast<int>(problem.taps);
  for (int i = thread; i < kThreads + taps - 1; i += kThreads) {
    values[i] = value_at(tile.in, tile.begin + i - taps / 2, problem.size);
  }
  __syncthreads();
  if (position >= problem.size) return;
  float sum = 0.f;
  for (int k = 0; k < taps; ++k) sum += constant_weight[k] * values[thread + k];
  tile.out[position] = sum;
}
// [shared_tile]

// [cached_halo]
__global__ void cached_halo(LadderProblem problem, Tiles tiles) {
  __shared__ float values[kThreads];
  const Tile tile = tile_of_block(problem, tiles, kThreads);
  const int64_t position = tile.begin + threadIdx.x;
  const int thread = static_cast<int>(threadIdx.x), taps = static_cast<int>(problem.taps);
  values[thread] = value_at(tile.in, position, problem.size);
  __syncthreads();
  if (position >= problem.size) return;
  float sum = 0.f;
  for (int k = 0; k < taps; ++k) {
    const int i = thread + k - taps / 2;
    const bool is_halo = i < 0 || i >= kThreads;
    sum += constant_weight[k] *
           (is_halo ? value_at(tile.in, tile.begin + i, problem.size) : values[i]);
  }
  tile.out[position] = sum;
}
// [cached_halo]

// [register_window]
constexpr int kOutputs = 8;  // per thread

// Loads the four values at `position`, whose address is a multiple of 16 bytes.
__device__ void load_four(float* to, const float* row, int64_t position, int64_t size) {
  if (position >= 0 && position + 4 <= size) {
    const Vec<float, 4> vec = load_vec<float, 4>(row + position);
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = vec.values[i];
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = value_at(row, position + i, size);
  }
}

// Adds four taps per iteration. The window holds 16 neighbouring values of the row: an iteration
// first loads the last four, and at its end shifts the window by four.
//
// An aligned vector begins at `position`. The value under the first tap is the one kSkipped values
// after it. kSkipped is a template argument, because a variable can't index registers.
template <int kSkipped>
__device__ void slide(float (&sums)[kOutputs], const float* row, int64_t position, int64_t size,
                      int taps) {
  float window[kOutputs + 8];
#pragma unroll
  for (int i = 0; i < kOutputs + 4; i += 4) load_four(window + i, row, position + i, size);
  for (int k = 0; k < taps; k += 4) {
    load_four(window + kOutputs + 4, row, position + k + kOutputs + 4, size);
#pragma unroll
    for (int next = 0; next < 4; ++next) {
      if (k + next < taps) {  // not a tap of 0 instead: times infinity it is NaN
#pragma unroll
        for (int i = 0; i < kOutputs; ++i) {
          sums[i] += constant_weight[k + next] * window[kSkipped + next + i];
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kOutputs + 4; ++i) window[i] = window[i + 4];
  }
}

__global__ void register_window(LadderProblem problem, Tiles tiles) {
  const Tile tile = tile_of_block(problem, tiles, kThreads * kOutputs);
  const int64_t position = tile.begin + threadIdx.x * kOutputs;
  if (position >= problem.size) return;
  const int taps = static_cast<int>(problem.taps);
  // A row may begin at any address. The value under a thread's first tap lies `skipped` values
  // after the begin of an aligned vector. All threads of a row have the same `skipped`.
  const auto skipped =
      static_cast<unsigned>(reinterpret_cast<uintptr_t>(tile.in) / sizeof(float) - taps / 2) % 4;
  const int64_t first = position - taps / 2 - skipped;
  float sums[kOutputs] = {};
  if (skipped == 0) slide<0>(sums, tile.in, first, problem.size, taps);
  if (skipped == 1) slide<1>(sums, tile.in, first, problem.size, taps);
  if (skipped == 2) slide<2>(sums, tile.in, first, problem.size, taps);
  if (skipped == 3) slide<3>(sums, tile.in, first, problem.size, taps);
  float* out = tile.out + position;
  if (reinterpret_cast<uintptr_t>(out) % 16 == 0 && position + kOutputs <= problem.size) {
    store_whole(out, Vec<float, 4>{sums[0], sums[1], sums[2], sums[3]});
    store_whole(out + 4, Vec<float, 4>{sums[4], sums[5], sums[6], sums[7]});
  } else {
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) {
      if (position + i < problem.size) out[i] = sums[i];
    }
  }
}
// [register_window]

using Kernel = void (*)(LadderProblem, Tiles);

}  // namespace

cudaError_t ladder_conv1d(int step, const LadderProblem& problem, cudaStream_t stream) {
  constexpr Kernel kKernels[] = {global_memory, constant_taps, shared_tile, cached_halo,
                                 register_window};
  constexpr int kSteps = sizeof(kKernels) / sizeof(Kernel);
  if (step < 0 || step >= kSteps) return cudaErrorInvalidValue;
  if (step > 0) {
    if (problem.taps > kMostTaps) return cudaErrorInvalidValue;
    const cudaError_t error =
        cudaMemcpyToSymbolAsync(constant_weight, problem.weight, problem.taps * sizeof(float), 0,
                                cudaMemcpyDeviceToDevice, stream);
    if (error != cudaSuccess) return error;
  }
  const Kernel kernel = kKernels[step];
  const int64_t outputs = kernel == register_window ? kThreads * kOutputs : kThreads;
  const int64_t of_row = ceil_div(problem.size, outputs), all = problem.rows * of_row;
  for (int64_t first = 0; first < all; first += problem.most_blocks) {
    const auto blocks = static_cast<unsigned>(min(all - first, problem.most_blocks));
    kernel<<<blocks, kThreads, 0, stream>>>(problem, Tiles{of_row, first});
  }
  return cudaGetLastError();
}

}  // namespace gpuopt::conv1d
