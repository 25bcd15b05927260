// The step "three_tf32_wgmma" of matmul_ladder.h.
#include "common/mbarrier.cuh"
#include "common/tensor_map.cuh"
#include "common/wgmma.cuh"
#include "matmul/ladder/matmul_ladder_fragments.cuh"

namespace gpuopt::matmul {
namespace {

// [three_tf32_wgmma]
// Warp 0 copies, warps 1 to 3 split B, and two groups of four warps split their rows of A and
// multiply.
constexpr int kTile = 128, kSlice = 32, kRawStages = 4, kPartStages = 2;
constexpr int kSplitters = 3 * 32, kMultipliers = 8, kThreads = 384;

struct Memory {
  struct Raw {
    float a[kTile][kSlice];  // swizzled
    float b[kSlice][kTile];
  } raw[kRawStages];
  struct PartsOfB {
    uint4 big[kTile][kSlice / 4];  // [column][k], swizzled
    uint4 small[kTile][kSlice / 4];
  } parts[kPartStages];
  Barrier full[kRawStages], empty[kRawStages];          // of a raw slice
  Barrier split[kPartStages], multiplied[kPartStages];  // of its parts
};

struct Maps {
  TensorMap a, b;
};

__device__ __forceinline__ void copy_slices(Memory& memory, const Maps& maps, const Tile& tile,
                                            int slices) {
  Ring<kRawStages> ring;
  for (int slice = 0; slice < slices; ++slice) {
    Memory::Raw& raw = memory.raw[ring.stage];
    wait_barrier(&memory.empty[ring.stage], ring.parity ^ 1);
    arrive_expecting(&memory.full[ring.stage], sizeof(Memory::Raw));
    copy_box(raw.a, maps.a, tile.row, slice * kSlice, &memory.full[ring.stage]);
    copy_box(raw.b, maps.b, slice * kSlice, tile.column, &memory.full[ring.stage]);
    ring.next();
  }
}

// Splits slices of B and transposes them, because TF32 operands need the values of a column as
// neighbours.
__device__ __forceinline__ void split_slices(Memory& memory, int thread, int slices) {
  Ring<kRawStages> ring;
  Ring<kPartStages> out;
  for (int slice = 0; slice < slices; ++slice) {
    wait_barrier(&memory.full[ring.stage], ring.parity);
    wait_barrier(&memory.multiplied[out.stage], out.parity ^ 1);
    const auto& raw = memory.raw[ring.stage];
    auto& parts = memory.parts[out.stage];
#pragma unroll 4
    for (int q = thread; q < kTile * kSlice / 4; q += kSplitters) {
      const int column = q % kTile, vec = q / kTile;
      Vec<uint32_t, 4> big, small;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        uint32_t bits;
        memcpy(&bits, &raw.b[4 * vec + i][column], sizeof(bits));
        const Parts own = parts_of(bits);
        big.values[i] = own.big;
        small.values[i] = own.small;
      }
      const int at = vec ^ column % 8;
      store_vec(reinterpret_cast<uint32_t*>(&parts.big[column][at]), big);
      store_vec(reinterpret_cast<uint32_t*>(&parts.small[column][at]), small);
    }
    fence_for_bulk_copies();  // wgmma reads as bulk copies do
    __syncwarp();
    if (thread % 32 == 0) {
      arrive(&memory.split[out.stage]);
      arrive(&memory.empty[ring.stage]);
    }
    ring.next();
    out.next();
  }
}

// Sums leave the tensor cores after every slice. While one group adds them, the other multiplies.
__device__ __forceinline__ void multiply_slices(float (&sums)[1][kTile / 8][4], Memory& memory,
                                                int row, int slices) {
  const int lane = threadIdx.x % 32, own_row = row + lane % 16;
  Ring<kRawStages> ring;
  Ring<kPartStages> in;
  for (int slice = 0; slice < slices; ++slice) {
    const auto* const a = reinterpret_cast<const uint4*>(memory.raw[ring.stage].a[own_row]);
    const auto& b = memory.parts[in.stage];
    uint32_t big[kSlice / 8][4], small[kSlice / 8][4];
    wait_barrier(&memory.full[ring.stage], ring.parity);
#pragma unroll
    for (int k = 0; k < kSlice / 8; ++k) {
      uint32_t words[4];
      load_matrices(words, a + ((2 * k + lane / 16) ^ own_row % 8));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Parts own = parts_of(words[i]);
        big[k][i] = own.big;
        small[k][i] = own.small;
      }
    }
    __syncwarp();
    if (lane == 0) arrive(&memory.empty[ring.stage]);
    wait_barrier(&memory.split[in.stage], in.parity);
    float slice_sums[kTile / 2];
    begin_products();
#pragma unroll
    for (int k = 0; k < kSlice / 8; ++k) {
      const uint64_t big_b = describe_operand(&b.big[0][2 * k]);
      multiply_tf32(slice_sums, small[k], big_b, k > 0);
      multiply_tf32(slice_sums, big[k], describe_operand(&b.small[0][2 * k]), true);
      multiply_tf32(slice_sums, big[k], big_b, true);
    }
    end_products();
    wait_for_products<0>(slice_sums);
    if (lane == 0) arrive(&memory.multiplied[in.stage]);
#pragma unroll
    for (int q = 0; q < kTile / 2; ++q) sums[0][q / 4][q % 4] += slice_sums[q];
    ring.next();
    in.next();
  }
}

__global__ void __launch_bounds__(kThreads)
    three_tf32_wgmma_kernel(const __grid_constant__ Maps maps,
                            const __grid_constant__ Matrices<float> x) {
  auto& memory = *reinterpret_cast<Memory*>(matmul_memory);
  const Tile tile = tile_of<kTile, kTile>(blockIdx.x, x.n);
  const int slices = (x.k + kSlice - 1) / kSlice, warp = threadIdx.x / 32;
  if (threadIdx.x == 0) {
    for (Barrier& barrier : memory.full) init_barrier(&barrier, 1);
    for (Barrier& barrier : memory.empty) init_barrier(&barrier, kSplitters / 32 + kMultipliers);
    for (Barrier& barrier : memory.split) init_barrier(&barrier, kSplitters / 32);
    for (Barrier& barrier : memory.multiplied) init_barrier(&barrier, kMultipliers);
    fence_barriers();
  }
  __syncthreads();
  if (warp < 4) {
    release_registers<40>();
    if (threadIdx.x == 0) copy_slices(memory, maps, tile, slices);
    if (warp > 0) split_slices(memory, threadIdx.x - 32, slices);
    return;
  }
  take_registers<232>();
  const int row = (warp - 4) * 16;
  float sums[1][kTile / 8][4] = {};
  multiply_slices(sums, memory, row, slices);
  store_fragments(sums, x, tile.row + row, tile.column);
  recompute_nan(sums, x, tile.row + row, tile.column);
}
// [three_tf32_wgmma]

}  // namespace

cudaError_t three_tf32_wgmma(const LadderProblem& p, Workspace&, cudaStream_t stream) {
  Maps maps;
  cudaError_t error =
      make_tensor_map(maps.a, p.dtype, p.a, p.m, p.k, p.a_pitch, kTile, kSlice, Swizzle::k128);
  if (error != cudaSuccess) return error;
  error = make_tensor_map(maps.b, p.dtype, p.b, p.k, p.n, p.b_pitch, kSlice, kTile, Swizzle::kNone);
  if (error != cudaSuccess) return error;
  return launch_kernel(three_tf32_wgmma_kernel,
                       {tiles_of(p, kTile, kTile), kThreads, sizeof(Memory)}, stream, maps,
                       matrices_of<float>(p));
}

}  // namespace gpuopt::matmul
