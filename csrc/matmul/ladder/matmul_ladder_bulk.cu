// The step "bulk_copies" of matmul_ladder.h.
#include "common/mbarrier.cuh"
#include "common/tensor_map.cuh"
#include "matmul/ladder/matmul_ladder_tiles.cuh"

namespace gpuopt::matmul {
namespace {

// [bulk_copies]
constexpr int kThreads = 256, kWarps = kThreads / 32, kStages = 4;
constexpr int kTileRows = 128, kTileColumns = 256, kSlice = 16;

struct Memory {
  struct Slice {
    float a[kTileRows][kSlice];  // with a swizzle of 64 bytes
    float b[kSlice][kTileColumns];
  } slices[kStages];
  Barrier full[kStages];   // the bytes of the slice are there
  Barrier empty[kStages];  // all warps have read the slice
};

struct Maps {
  TensorMap a, b;
};

__device__ __forceinline__ void copy_slice(Memory& memory, const Maps& maps, const Tile& tile,
                                           int slice) {
  const int stage = slice % kStages;
  arrive_expecting(&memory.full[stage], sizeof(Memory::Slice));
  copy_box(memory.slices[stage].a, maps.a, tile.row, slice * kSlice, &memory.full[stage]);
  copy_box(memory.slices[stage].b, maps.b, slice * kSlice, tile.column, &memory.full[stage]);
}

// A row of A in shared memory is 16 values of k, so a thread reads 4 of them at once. Its rows lie
// 8 apart: the 8 rows that a warp reads at once are neighbours, which the swizzle spreads over all
// banks.
constexpr Spread kRows{8, 1, 8}, kColumns{16, 4, 16};

__device__ __forceinline__ void multiply_slice(OutputBlock<kRows, kColumns>& block,
                                               const Memory::Slice& slice, int row, int column) {
  const int swizzle = row / 2 % 4;  // the same for all rows of the thread
#pragma unroll 2  // 8 of k are 16 KB of code. More may not stay in the instruction cache
  for (int vec = 0; vec < kSlice / 4; ++vec) {
    alignas(16) float a[8][4];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      *reinterpret_cast<float4*>(a[i]) =
          *reinterpret_cast<const float4*>(&slice.a[row + 8 * i][(vec ^ swizzle) * 4]);
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      alignas(16) float own[8], b[16];
#pragma unroll
      for (int i = 0; i < 8; ++i) own[i] = a[i][k];
      load_values<kColumns>(b, &slice.b[vec * 4 + k][column]);
      block.multiply_add(own, b);
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    bulk_copies_kernel(const __grid_constant__ Maps maps, float* out, int m, int n, int k) {
  auto& memory = *reinterpret_cast<Memory*>(matmul_memory);
  const Tile tile = tile_of<kTileRows, kTileColumns>(blockIdx.x, n);
  const int slices = (k + kSlice - 1) / kSlice, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row = warp / 4 * 64 + lane / 4, column = warp % 4 * 64 + lane % 4 * 4;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      init_barrier(&memory.full[stage], 1);
      init_barrier(&memory.empty[stage], kWarps);
    }
    fence_barriers();
    for (int slice = 0; slice < min(kStages, slices); ++slice) {
      copy_slice(memory, maps, tile, slice);
    }
  }
  __syncthreads();
  OutputBlock<kRows, kColumns> block;
  Ring<kStages> ring, freed;
  for (int slice = 0; slice < slices; ++slice) {
    // The slice before the previous one: the other warps have read it for a long time.
    if (slice >= 2) {
      if (threadIdx.x == 0 && slice - 2 + kStages < slices) {
        wait_barrier(&memory.empty[freed.stage], freed.parity);
        copy_slice(memory, maps, tile, slice - 2 + kStages);
      }
      freed.next();
      __syncwarp();
    }
    wait_barrier(&memory.full[ring.stage], ring.parity);
    multiply_slice(block, memory.slices[ring.stage], row, column);
    __syncwarp();
    if (lane == 0) arrive(&memory.empty[ring.stage]);
    ring.next();
  }
  block.store(out, m, n, tile.row + row, tile.column + column);
}
// [bulk_copies]

static_assert(sizeof(Memory) <= kBulkCopiesKb << 10);

}  // namespace

cudaError_t bulk_copies(const LadderProblem& p, Workspace&, cudaStream_t stream) {
  Maps maps;
  cudaError_t error =
      make_tensor_map(maps.a, p.dtype, p.a, p.m, p.k, p.a_pitch, kTileRows, kSlice, Swizzle::k64);
  if (error != cudaSuccess) return error;
  error = make_tensor_map(maps.b, p.dtype, p.b, p.k, p.n, p.b_pitch, kSlice, kTileColumns,
                          Swizzle::kNone);
  if (error != cudaSuccess) return error;
  return launch_kernel(bulk_copies_kernel,
                       {tiles_of(p, kTileRows, kTileColumns), kThreads, sizeof(Memory)}, stream,
                       maps, static_cast<float*>(p.out), p.m, p.n, p.k);
}

}  // namespace gpuopt::matmul
