// The step "bulk_copies" of matmul_ladder.h.
#include "common/mbarrier.cuh"
#include "common/tensor_map.cuh"
#include "matmul/ladder/matmul_ladder_tiles.cuh"

namespace gpuopt::matmul {
namespace {

// [bulk_copies]
constexpr int kThreads = 256;
constexpr int kTileRows = 128, kTileColumns = 256, kSlice = 16, kStages = 4;

struct Memory {
  float raw_a[kStages][kTileRows][kSlice];  // with a swizzle of 64 bytes
  float b[kStages][kSlice][kTileColumns];
  float a[2][kSlice][kTileRows];
  Barrier full[kStages];  // the bytes of the slice are there
};

struct Maps {
  TensorMap a, b;
};

__device__ __forceinline__ void copy_slice(Memory& memory, const Maps& maps, const Tile& tile,
                                           int slice) {
  const int stage = slice % kStages;
  Barrier* const full = &memory.full[stage];
  arrive_expecting(full, sizeof(memory.raw_a[0]) + sizeof(memory.b[0]));
  copy_box(memory.raw_a[stage], maps.a, tile.row, slice * kSlice, full);
  copy_box(memory.b[stage], maps.b, slice * kSlice, tile.column, full);
}

constexpr Spread kRows{8, 4, 32}, kColumns{16, 4, 16};

// The vectors of A that a thread transposes: two of one row.
constexpr int kThreadVecs = kTileRows * kSlice / 4 / kThreads;
using Raw = Vec<float, 4>[kThreadVecs];
__device__ __forceinline__ void load_raw(Raw& values, const float (&raw)[kTileRows][kSlice]) {
  const int row = threadIdx.x % kTileRows, first = threadIdx.x / kTileRows * kThreadVecs;
#pragma unroll
  for (int i = 0; i < kThreadVecs; ++i) {
    values[i] = load_vec<float, 4>(&raw[row][((first + i) ^ row / 2 % 4) * 4]);
  }
}
__device__ __forceinline__ void store_transposed(float (&a)[kSlice][kTileRows], const Raw& values) {
  const int row = threadIdx.x % kTileRows, first = threadIdx.x / kTileRows * kThreadVecs;
#pragma unroll
  for (int i = 0; i < kThreadVecs; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) a[4 * (first + i) + j][row] = values[i].values[j];
  }
}

__global__ void __launch_bounds__(kThreads)
    bulk_copies_kernel(const __grid_constant__ Maps maps, float* out, int m, int n, int k) {
  auto& memory = *reinterpret_cast<Memory*>(matmul_memory);
  const Tile tile = tile_of<kTileRows, kTileColumns>(blockIdx.x, n);
  const int slices = (k + kSlice - 1) / kSlice, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row = warp / 4 * 64 + lane / 4 * 4, column = warp % 4 * 64 + lane % 4 * 4;
  if (threadIdx.x == 0) {
    for (Barrier& full : memory.full) init_barrier(&full, 1);
    fence_barriers();
    for (int slice = 0; slice < min(kStages, slices); ++slice) {
      copy_slice(memory, maps, tile, slice);
    }
  }
  __syncthreads();
  OutputBlock<kRows, kColumns> block;
  alignas(16) float a[2][8], b[2][16];
  Raw raw;
  Ring<kStages> ring;  // of the next slice
  wait_barrier(&memory.full[0], 0);
  load_raw(raw, memory.raw_a[0]);
  store_transposed(memory.a[0], raw);
  ring.next();
  for (int slice = 0; slice < slices; ++slice) {
    __syncthreads();  // A of this slice is transposed, and all warps have read the previous slice
    if (threadIdx.x == 0 && slice > 0 && slice - 1 + kStages < slices) {
      copy_slice(memory, maps, tile, slice - 1 + kStages);
    }
    const float* const a_row = &memory.a[slice % 2][0][row];
    const float* const b_column = &memory.b[slice % kStages][0][column];
    const auto load = [&](int k, int to) {
      load_values<kRows>(a[to], a_row + k * kTileRows);
      load_values<kColumns>(b[to], b_column + k * kTileColumns);
    };
    load(0, 0);
    if (slice + 1 < slices) {
      wait_barrier(&memory.full[ring.stage], ring.parity);
      load_raw(raw, memory.raw_a[ring.stage]);
    }
#pragma unroll 1  // 8 of k are 16 KB of code. More may not stay in the instruction cache
    for (int k0 = 0; k0 < kSlice; k0 += 8) {
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        if (k0 + k + 1 < kSlice) load(k0 + k + 1, (k + 1) % 2);
        block.multiply_add(a[k % 2], b[k % 2]);
      }
      if (k0 == 0) store_transposed(memory.a[(slice + 1) % 2], raw);
    }
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
