// Steps 5 to 7 of scan_ladder.h, whose threads hold vectors. docs/ladder shows the code of a step
// between two equal marks in brackets.
#include "common/vec.cuh"
#include "scan/ladder/scan_ladder.h"
#include "scan/ladder/scan_ladder_tiles.cuh"

namespace gpuopt::scan {
namespace {

constexpr int kThreads = kLadderThreads;
constexpr int kWarps = kLadderWarps;

// [vectors]
constexpr int kVecs = 4;                         // vectors of a thread
constexpr int64_t kTile = kThreads * kVecs * 4;  // values of a block

// A warp holds 512 neighbouring values. Vector v of its lanes holds 128 of them, so each load of a
// warp is coalesced.
struct Values {
  Vec<float, 4> vecs[kVecs];

  __device__ static int64_t position(int64_t tile, int v) {
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    return tile * kTile + warp * (kVecs * 128) + v * 128 + lane * 4;
  }

  __device__ void load(const float* in, int64_t size, int64_t tile) {
#pragma unroll
    for (int v = 0; v < kVecs; ++v) {
      const int64_t i = position(tile, v);
      if (i + 4 <= size) {
        vecs[v] = load_vec<float, 4>(in + i);
      } else {
#pragma unroll
        for (int k = 0; k < 4; ++k) vecs[v].values[k] = i + k < size ? in[i + k] : 0.f;
      }
    }
  }

  __device__ void store(float* out, int64_t size, int64_t tile) const {
#pragma unroll
    for (int v = 0; v < kVecs; ++v) {
      const int64_t i = position(tile, v);
      if (i + 4 <= size) {
        store_whole(out + i, vecs[v]);
      } else {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          if (i + k < size) out[i + k] = vecs[v].values[k];
        }
      }
    }
  }

  __device__ void add(float before) {
#pragma unroll
    for (int v = 0; v < kVecs; ++v) add(v, before);
  }

  __device__ void add(int v, float before) {
#pragma unroll
    for (float& value : vecs[v].values) value += before;
  }
};

__device__ float of_last_lane(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  bits = __shfl_sync(0xffffffffu, bits, 31);
  memcpy(&value, &bits, sizeof(bits));
  return value;
}

// Scans the values of the block, and returns their total to all threads. In a loop, a barrier must
// follow, because the next call writes `of_warps`.
__device__ float scan_tile(Values& values) {
  __shared__ float of_warps[kWarps];
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float sum = 0.f;  // of the warp's values up to vector v
#pragma unroll
  for (int v = 0; v < kVecs; ++v) {
    float* own = values.vecs[v].values;
#pragma unroll
    for (int k = 1; k < 4; ++k) own[k] += own[k - 1];
    const float of_lanes = scan_warp(own[3]), of_lanes_before = shuffle_up(of_lanes, 1);
    values.add(v, sum + (lane > 0 ? of_lanes_before : 0.f));
    sum += of_last_lane(of_lanes);
  }
  if (lane == 0) of_warps[warp] = sum;
  __syncthreads();
  float before = 0.f, total = 0.f;
#pragma unroll
  for (unsigned w = 0; w < kWarps; ++w) {
    if (w == warp) before = total;
    total += of_warps[w];
  }
  values.add(before);
  return total;
}

__global__ void vectors(const float* in, int64_t size, float* out, float* totals) {
  Values values;
  values.load(in, size, blockIdx.x);
  const float total = scan_tile(values);
  values.store(out, size, blockIdx.x);
  if (threadIdx.x == 0) totals[blockIdx.x] = total;
}

__global__ void add_to_vectors(const float* sums, int64_t /*tile_size*/, int64_t size, float* out) {
  Values values;
  values.load(out, size, int64_t{blockIdx.x} + 1);
  values.add(sums[blockIdx.x]);
  values.store(out, size, int64_t{blockIdx.x} + 1);
}
// [vectors]

// [reduce_then_scan]
__device__ float sum_warp(float value) {
#pragma unroll
  for (int mask = 1; mask < 32; mask *= 2) value += shuffle_xor(value, mask);
  return value;
}

// A block's share is `count` neighbouring tiles.
__global__ void reduce_shares(const float* in, int64_t size, int64_t count, float* totals) {
  __shared__ float of_warps[kWarps];
  float sum = 0.f;
  for (int64_t tile = blockIdx.x * count; tile < (blockIdx.x + 1) * count; ++tile) {
    Values values;
    values.load(in, size, tile);
#pragma unroll
    for (const Vec<float, 4>& vec : values.vecs) {
      sum += (vec.values[0] + vec.values[1]) + (vec.values[2] + vec.values[3]);
    }
  }
  sum = sum_warp(sum);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (int w = 1; w < kWarps; ++w) sum += of_warps[w];
  totals[blockIdx.x] = sum;
}

// Here `sums` are the scanned totals of the shares.
__global__ void scan_shares(const float* in, int64_t size, int64_t count, const float* sums,
                            float* out) {
  float before = blockIdx.x > 0 ? sums[blockIdx.x - 1] : 0.f;
  for (int64_t tile = blockIdx.x * count; tile < (blockIdx.x + 1) * count; ++tile) {
    Values values;
    values.load(in, size, tile);
    const float total = scan_tile(values);
    values.add(before);
    values.store(out, size, tile);
    before += total;
    __syncthreads();
  }
}
// [reduce_then_scan]

// [look_back]
enum State : uint32_t { kNothing, kTotal, kSum };  // kNothing: cleared before the launch

// What a tile publishes: first its total, then the sum up to its end. Value and state are one
// access of 8 bytes, so no fence orders them.
struct Record {
  float value;
  State state;
};

__device__ void publish(uint64_t* to, const Record& record) {
  uint64_t bits;
  memcpy(&bits, &record, sizeof(bits));
  *const_cast<volatile uint64_t*>(to) = bits;
}

__device__ Record wait_for(const uint64_t* from) {
  Record record;
  do {
    const uint64_t bits = *const_cast<const volatile uint64_t*>(from);
    memcpy(&record, &bits, sizeof(bits));
  } while (record.state == kNothing);
  return record;
}

// The sum of all tiles before one. A warp reads the records of 32 tiles, the nearest in lane 0. It
// adds totals up to the nearest sum, or goes on with the 32 tiles before them.
__device__ float sum_before(const uint64_t* records, int64_t tile) {
  const unsigned lane = threadIdx.x % 32;
  float before = 0.f;
  for (int64_t nearest = tile - 1;; nearest -= 32) {
    Record record{0.f, kSum};  // before the first tile
    if (nearest >= lane) record = wait_for(records + (nearest - lane));
    const uint32_t sums = __ballot_sync(0xffffffffu, record.state == kSum);
    const bool counts = sums == 0 || lane < static_cast<unsigned>(__ffs(sums));
    before += sum_warp(counts ? record.value : 0.f);
    if (sums != 0) return before;
  }
}

// Blocks take tiles in the order in which they start. So a block waits only for tiles of blocks
// that run or have ended, and they publish their totals without waiting.
__global__ void look_back(const float* in, int64_t size, unsigned* next_tile, uint64_t* records,
                          float* out) {
  __shared__ unsigned taken;
  __shared__ float before;
  if (threadIdx.x == 0) taken = atomicAdd(next_tile, 1u);
  __syncthreads();
  const int64_t tile = taken;
  Values values;
  values.load(in, size, tile);
  const float total = scan_tile(values);
  if (threadIdx.x < 32) {
    if (threadIdx.x == 0) publish(records + tile, {total, kTotal});
    const float sum = sum_before(records, tile);
    if (threadIdx.x == 0) {
      publish(records + tile, {sum + total, kSum});
      before = sum;
    }
  }
  __syncthreads();
  values.add(before);
  values.store(out, size, tile);
}
// [look_back]

// Four blocks per SM. One block must be able to scan all totals.
cudaError_t launch_shares(const LadderProblem& problem, Workspace& workspace, cudaStream_t stream) {
  const int64_t tiles = ceil_div(problem.size, kTile), most = min(int64_t{problem.sms} * 4, kTile);
  const int64_t share = ceil_div(tiles, most), shares = ceil_div(tiles, share);
  const auto blocks = static_cast<unsigned>(shares);
  auto* totals = static_cast<float*>(workspace.allocate((shares + 1) * sizeof(float)));
  reduce_shares<<<blocks, kThreads, 0, stream>>>(problem.in, problem.size, share, totals);
  vectors<<<1, kThreads, 0, stream>>>(totals, shares, totals, totals + shares);
  scan_shares<<<blocks, kThreads, 0, stream>>>(problem.in, problem.size, share, totals,
                                               problem.out);
  return cudaGetLastError();
}

cudaError_t launch_look_back(const LadderProblem& problem, Workspace& workspace,
                             cudaStream_t stream) {
  const int64_t tiles = ceil_div(problem.size, kTile);
  const size_t bytes = (tiles + 1) * sizeof(uint64_t);  // the counter and the records
  auto* counter = static_cast<uint64_t*>(workspace.allocate(bytes));
  const cudaError_t error = cudaMemsetAsync(counter, 0, bytes, stream);
  if (error != cudaSuccess) return error;
  look_back<<<static_cast<unsigned>(tiles), kThreads, 0, stream>>>(
      problem.in, problem.size, reinterpret_cast<unsigned*>(counter), counter + 1, problem.out);
  return cudaGetLastError();
}

}  // namespace

cudaError_t ladder_scan_vectors(int step, const LadderProblem& problem, Workspace& workspace,
                                cudaStream_t stream) {
  if (step == 6) return launch_shares(problem, workspace, stream);
  if (step == 7) return launch_look_back(problem, workspace, stream);
  constexpr Tiles kVectors{vectors, add_to_vectors, kTile, 1};
  return launch_tiles(kVectors, problem.in, problem.size, problem.out, workspace, stream);
}

}  // namespace gpuopt::scan
