// Shared by the steps of scan_ladder.h: the scan of a warp, and the launches of steps that scan
// tiles.
#pragma once

#include "common/index.h"
#include "common/warp.cuh"
#include "scan/ladder/scan_ladder.h"

namespace gpuopt::scan {

constexpr int kLadderThreads = 256;
constexpr int kLadderWarps = kLadderThreads / 32;

// [warp_shuffle]
// The sum of the values of lane 0 to the own lane: Hillis and Steele's rounds, in registers.
__device__ inline float scan_warp(float value) {
  const unsigned lane = threadIdx.x % 32;
#pragma unroll
  for (unsigned apart = 1; apart < 32; apart *= 2) {
    const float before = shuffle_up(value, apart);
    if (lane >= apart) value += before;
  }
  return value;
}
// [warp_shuffle]

// The kernels of a step that scans tiles.
struct Tiles {
  void (*scan)(const float*, int64_t, float*, float*);
  void (*add)(const float*, int64_t, int64_t, float*);
  int64_t size;
  int64_t per_block;
};

// Scans the tiles, then their totals in the same way, and adds the sums of totals to the tiles.
inline cudaError_t launch_tiles(const Tiles& tiles, const float* in, int64_t size, float* out,
                                Workspace& workspace, cudaStream_t stream) {
  const auto [scan, add, tile_size, per_block] = tiles;
  const int64_t count = ceil_div(size, tile_size);
  auto* totals = static_cast<float*>(workspace.allocate(count * sizeof(float)));
  const auto blocks = static_cast<unsigned>(ceil_div(count, per_block));
  scan<<<blocks, kLadderThreads, 0, stream>>>(in, size, out, totals);
  cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess || count == 1) return error;
  error = launch_tiles(tiles, totals, count, totals, workspace, stream);
  if (error != cudaSuccess) return error;
  add<<<static_cast<unsigned>(count - 1), kLadderThreads, 0, stream>>>(totals, tile_size, size,
                                                                       out);
  return cudaGetLastError();
}

// Steps "vectors" to "look_back".
cudaError_t ladder_scan_vectors(int step, const LadderProblem& problem, Workspace& workspace,
                                cudaStream_t stream);

}  // namespace gpuopt::scan
