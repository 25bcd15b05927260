// What the steps with wgmma share: slices copied by tensor maps, the products of a slice, and the
// outputs of a warpgroup, which is four warps.
#pragma once

#include "common/mbarrier.cuh"
#include "common/tensor_map.cuh"
#include "common/wgmma.cuh"
#include "matmul/device/matmul_fragments.cuh"
#include "matmul/ladder/matmul_ladder_tiles.cuh"

namespace gpuopt::matmul {

constexpr int kTileRows = 128, kTileColumns = 256, kSlice = 64, kStages = 4;
constexpr int kWarpgroupRows = 64;
constexpr int kWarpgroups = kTileRows / kWarpgroupRows;

// [wgmma]
// Rows of 128 bytes, swizzled. 256 columns of B are four boxes of 64 columns.
struct Memory {
  struct Slice {
    uint16_t a[kTileRows][kSlice];
    uint16_t b[kTileColumns / 64][kSlice][64];
  } slices[kStages];
  Barrier full[kStages];
  Barrier empty[kStages];
};

struct Maps {
  TensorMap a, b;
};

__device__ __forceinline__ void copy_slice(Memory& memory, int stage, const Maps& maps,
                                           const Tile& tile, int k0) {
  Barrier* const full = &memory.full[stage];
  arrive_expecting(full, sizeof(Memory::Slice));
  copy_box(memory.slices[stage].a, maps.a, tile.row, k0, full);
#pragma unroll
  for (int i = 0; i < kTileColumns / 64; ++i) {
    copy_box(memory.slices[stage].b[i], maps.b, k0, tile.column + 64 * i, full);
  }
}

// Starts the products of a slice. The first slice of a tile does not add to the sums.
template <typename T>
__device__ __forceinline__ void multiply_slice(float (&sums)[128], const Memory::Slice& slice,
                                               int warpgroup, bool adds) {
  begin_products();
#pragma unroll
  for (int k = 0; k < kSlice; k += 16) {
    multiply_operands<T>(sums, describe_operand(&slice.a[kWarpgroupRows * warpgroup][k]),
                         describe_operand(&slice.b[0][k][0], sizeof(slice.b[0])), adds || k > 0);
  }
  end_products();
}

// Stores the sums of a warpgroup, whose outputs begin at `row` and `column`.
template <typename T>
__device__ __forceinline__ void store_sums(const float (&sums)[128], T* out, int m, int n, int row,
                                           int column) {
  const int warp_row = row + static_cast<int>(threadIdx.x % 128 / 32) * 16;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int j = 0; j < kTileColumns / 8; ++j) {
      store_pair(out, m, n, warp_row + fragment_row(half), column + 8 * j + fragment_column(),
                 sums[4 * j + 2 * half], sums[4 * j + 2 * half + 1]);
    }
  }
}
// [wgmma]

// One thread calls this. `readers` arrive when they have read a slice.
__device__ __forceinline__ void init_barriers(Memory& memory, uint32_t readers) {
  for (int stage = 0; stage < kStages; ++stage) {
    init_barrier(&memory.full[stage], 1);
    init_barrier(&memory.empty[stage], readers);
  }
  fence_barriers();
}

inline cudaError_t make_maps(Maps& maps, const LadderProblem& p) {
  const cudaError_t error =
      make_tensor_map(maps.a, p.dtype, p.a, p.m, p.k, p.a_pitch, kTileRows, kSlice, Swizzle::k128);
  if (error != cudaSuccess) return error;
  return make_tensor_map(maps.b, p.dtype, p.b, p.k, p.n, p.b_pitch, kSlice, 64, Swizzle::k128);
}

// [producer_consumer]
// Multiplies the slices of a tile. `release` says that this warp has read a stage. The products of
// one slice still run when the products of the next slice start.
template <typename T, typename Release>
__device__ __forceinline__ void multiply_tile(float (&sums)[128], Memory& memory,
                                              Ring<kStages>& ring, int slices, int warpgroup,
                                              Release release) {
  int previous = 0;
  for (int slice = 0; slice < slices; ++slice) {
    wait_barrier(&memory.full[ring.stage], ring.parity);
    multiply_slice<T>(sums, memory.slices[ring.stage], warpgroup, slice > 0);
    wait_for_products<1>(sums);
    if (slice > 0) release(previous);
    previous = ring.stage;
    ring.next();
  }
  wait_for_products<0>(sums);
  release(previous);
}
// [producer_consumer]

template <typename Start>
cudaError_t with_half(const LadderProblem& p, Start start) {
  return p.dtype == DType::kFloat16 ? start(__half{}) : start(__nv_bfloat16{});
}

}  // namespace gpuopt::matmul
