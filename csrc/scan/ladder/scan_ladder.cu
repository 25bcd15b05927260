// Steps 0 to 4 of scan_ladder.h. docs/ladder shows the code of a step between two equal marks in
// brackets.
//
// A kernel scans tiles of `in` into `out`, and writes the total of each tile to `totals`. Each
// thread writes the same elements that it reads, so `out` may be `in`.
#include "scan/ladder/scan_ladder.h"
#include "scan/ladder/scan_ladder_tiles.cuh"

namespace gpuopt::scan {
namespace {

constexpr int kThreads = kLadderThreads;
constexpr int kWarps = kLadderWarps;

// [sequential]
constexpr int64_t kPerThread = 1024;

__global__ void sequential(const float* in, int64_t size, float* out, float* totals) {
  const int64_t tile = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t first = tile * kPerThread, end = min(first + kPerThread, size);
  float sum = 0.f;
  for (int64_t i = first; i < end; ++i) {
    sum += in[i];
    out[i] = sum;
  }
  if (first < size) totals[tile] = sum;
}

// Adds to each tile the sum of all tiles before it. The first tile has none before it and needs no
// block.
__global__ void add_to_tiles(const float* sums, int64_t tile_size, int64_t size, float* out) {
  const int64_t tile = int64_t{blockIdx.x} + 1, end = min((tile + 1) * tile_size, size);
  for (int64_t i = tile * tile_size + threadIdx.x; i < end; i += kThreads) {
    out[i] += sums[tile - 1];
  }
}
// [sequential]

// [hillis_steele]
// Two buffers alternate. A thread is at most one round ahead of another, so it never overwrites a
// value that is still to be read, and one barrier per round is enough.
__global__ void hillis_steele(const float* in, int64_t size, float* out, float* totals) {
  __shared__ float sums[2][kThreads];
  const unsigned own = threadIdx.x;
  const int64_t i = int64_t{blockIdx.x} * kThreads + own;
  float sum = i < size ? in[i] : 0.f;
  unsigned buffer = 0;
  for (unsigned apart = 1; apart < kThreads; apart *= 2) {
    sums[buffer][own] = sum;
    __syncthreads();
    if (own >= apart) sum += sums[buffer][own - apart];
    buffer ^= 1;
  }
  if (i < size) out[i] = sum;
  if (own == kThreads - 1) totals[blockIdx.x] = sum;
}
// [hillis_steele]

// [blelloch]
constexpr unsigned kPairs = 2 * kThreads;  // values of a tile

// The position of value i in shared memory, with an unused word after every kGap values.
template <unsigned kGap>
__device__ unsigned at(unsigned i) {
  return i + i / kGap;
}

template <unsigned kGap>
__device__ void scan_by_sweeps(const float* in, int64_t size, float* out, float* totals) {
  __shared__ float values[kPairs + kPairs / kGap];
  const unsigned own = threadIdx.x;
  const int64_t i = int64_t{blockIdx.x} * kPairs + own, j = i + kThreads;
  const float low = i < size ? in[i] : 0.f, high = j < size ? in[j] : 0.f;
  values[at<kGap>(own)] = low;
  values[at<kGap>(own + kThreads)] = high;

  // Up: a node of the tree lies at its last value. It becomes the sum of its two children.
  for (unsigned apart = 1; apart < kPairs; apart *= 2) {
    __syncthreads();
    const unsigned right = 2 * apart * (own + 1) - 1;
    if (right < kPairs) values[at<kGap>(right)] += values[at<kGap>(right - apart)];
  }
  if (own == 0) {  // the thread that wrote the root
    float& root = values[at<kGap>(kPairs - 1)];
    totals[blockIdx.x] = root;
    root = 0.f;
  }
  // Down: a node knows the sum of all values before it. That is also the left child's. The right
  // child adds the left child's values.
  for (unsigned apart = kPairs / 2; apart > 0; apart /= 2) {
    __syncthreads();
    const unsigned right = 2 * apart * (own + 1) - 1;
    if (right < kPairs) {
      const float left = values[at<kGap>(right - apart)];
      values[at<kGap>(right - apart)] = values[at<kGap>(right)];
      values[at<kGap>(right)] += left;
    }
  }
  __syncthreads();
  if (i < size) out[i] = values[at<kGap>(own)] + low;
  if (j < size) out[j] = values[at<kGap>(own + kThreads)] + high;
}

__global__ void blelloch(const float* in, int64_t size, float* out, float* totals) {
  scan_by_sweeps</*kGap=*/kPairs>(in, size, out, totals);
}
// [blelloch]

// [conflict_free]
__global__ void conflict_free(const float* in, int64_t size, float* out, float* totals) {
  scan_by_sweeps</*kGap=*/32>(in, size, out, totals);
}
// [conflict_free]

// [warp_shuffle]
__global__ void warp_shuffle(const float* in, int64_t size, float* out, float* totals) {
  __shared__ float of_warps[kWarps];
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  float sum = scan_warp(i < size ? in[i] : 0.f);
  if (lane == 31) of_warps[warp] = sum;
  __syncthreads();
  float before = 0.f;
  for (unsigned w = 0; w < warp; ++w) before += of_warps[w];
  sum += before;
  if (i < size) out[i] = sum;
  if (threadIdx.x == kThreads - 1) totals[blockIdx.x] = sum;
}
// [warp_shuffle]

constexpr Tiles kTiles[] = {{sequential, add_to_tiles, kPerThread, kThreads},
                            {hillis_steele, add_to_tiles, kThreads, 1},
                            {blelloch, add_to_tiles, kPairs, 1},
                            {conflict_free, add_to_tiles, kPairs, 1},
                            {warp_shuffle, add_to_tiles, kThreads, 1}};

}  // namespace

cudaError_t ladder_scan(int step, const LadderProblem& problem, Workspace& workspace,
                        cudaStream_t stream) {
  if (problem.size == 0) return cudaSuccess;
  if (step < 0 || step > 7) return cudaErrorInvalidValue;
  if (step > 4) return ladder_scan_vectors(step, problem, workspace, stream);
  return launch_tiles(kTiles[step], problem.in, problem.size, problem.out, workspace, stream);
}

}  // namespace gpuopt::scan
