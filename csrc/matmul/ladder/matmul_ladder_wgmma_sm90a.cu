// The steps of matmul_ladder.h with wgmma, except "clusters".
#include "matmul/ladder/matmul_ladder_hopper.cuh"

namespace gpuopt::matmul {
namespace {

// [wgmma]
// Two warpgroups. Thread 0 also copies.
template <typename T>
__global__ void __launch_bounds__(kWarpgroups * 128)
    wgmma_kernel(const __grid_constant__ Maps maps, T* out, int m, int n, int k) {
  auto& memory = *reinterpret_cast<Memory*>(matmul_memory);
  const Tile tile = tile_of<kTileRows, kTileColumns>(blockIdx.x, n);
  const int slices = (k + kSlice - 1) / kSlice, warpgroup = threadIdx.x / 128;
  if (threadIdx.x == 0) {
    init_barriers(memory, 1);
    for (int slice = 0; slice < min(kStages, slices); ++slice) {
      copy_slice(memory, slice, maps, tile, slice * kSlice);
    }
  }
  __syncthreads();
  float sums[128];
  Ring<kStages> ring;
  for (int slice = 0; slice < slices; ++slice) {
    wait_barrier(&memory.full[ring.stage], ring.parity);
    multiply_slice<T>(sums, memory.slices[ring.stage], warpgroup, slice > 0);
    wait_for_products<0>(sums);
    __syncthreads();  // both warpgroups have read the slice
    if (threadIdx.x == 0 && slice + kStages < slices) {
      copy_slice(memory, ring.stage, maps, tile, (slice + kStages) * kSlice);
    }
    __syncwarp();  // products need all threads of a warp together
    ring.next();
  }
  store_sums(sums, out, m, n, tile.row + kWarpgroupRows * warpgroup, tile.column);
}
// [wgmma]

// [producer_consumer]
struct InRows {
  __device__ static Tile tile(int index, int, int n) {
    return tile_of<kTileRows, kTileColumns>(index, n);
  }
};

// Warpgroup 0 copies, the others multiply. A block has the tiles from blockIdx.x on, gridDim.x
// apart.
template <typename T, typename Order>
__global__ void __launch_bounds__((1 + kWarpgroups) * 128)
    producer_consumer_kernel(const __grid_constant__ Maps maps, T* out, int m, int n, int k,
                             int tiles) {
  auto& memory = *reinterpret_cast<Memory*>(matmul_memory);
  const int slices = (k + kSlice - 1) / kSlice, warpgroup = static_cast<int>(threadIdx.x / 128) - 1;
  if (threadIdx.x == 0) init_barriers(memory, kWarpgroups * 4);
  __syncthreads();
  Ring<kStages> ring;
  if (warpgroup < 0) {
    release_registers<40>();
    if (threadIdx.x != 0) return;
    for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
      const Tile tile = Order::tile(index, m, n);
      for (int slice = 0; slice < slices; ++slice) {
        wait_barrier(&memory.empty[ring.stage], ring.parity ^ 1);
        copy_slice(memory, ring.stage, maps, tile, slice * kSlice);
        ring.next();
      }
    }
  } else {
    take_registers<232>();
    for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
      const Tile tile = Order::tile(index, m, n);
      float sums[128];
      multiply_tile<T>(sums, memory, ring, slices, warpgroup, [&](int stage) {
        if (threadIdx.x % 32 == 0) arrive(&memory.empty[stage]);
      });
      store_sums(sums, out, m, n, tile.row + kWarpgroupRows * warpgroup, tile.column);
    }
  }
}
// [producer_consumer]

// [persistent]
// producer_consumer_kernel with as many blocks as there are SMs, and tiles in this order.
struct InRectangles {
  __device__ static Tile tile(int index, int m, int n) {
    return tile_in_order(index, m, n, kTileRows, kTileColumns, 16);
  }
};
// [persistent]

template <typename Order>
cudaError_t start_producer_consumer(const LadderProblem& p, unsigned blocks, cudaStream_t stream) {
  return with_half(p, [&](auto type) {
    using T = decltype(type);
    Maps maps;
    const cudaError_t error = make_maps(maps, p);
    if (error != cudaSuccess) return error;
    return launch_kernel(producer_consumer_kernel<T, Order>,
                         {blocks, (1 + kWarpgroups) * 128, sizeof(Memory)}, stream, maps,
                         static_cast<T*>(p.out), p.m, p.n, p.k,
                         static_cast<int>(tiles_of(p, kTileRows, kTileColumns)));
  });
}

}  // namespace

cudaError_t wgmma(const LadderProblem& p, Workspace&, cudaStream_t stream) {
  return with_half(p, [&](auto type) {
    using T = decltype(type);
    Maps maps;
    const cudaError_t error = make_maps(maps, p);
    if (error != cudaSuccess) return error;
    return launch_kernel(wgmma_kernel<T>,
                         {tiles_of(p, kTileRows, kTileColumns), kWarpgroups * 128, sizeof(Memory)},
                         stream, maps, static_cast<T*>(p.out), p.m, p.n, p.k);
  });
}

cudaError_t producer_consumer(const LadderProblem& p, Workspace&, cudaStream_t stream) {
  return start_producer_consumer<InRows>(p, tiles_of(p, kTileRows, kTileColumns), stream);
}

cudaError_t persistent(const LadderProblem& p, Workspace&, cudaStream_t stream) {
  const unsigned tiles = tiles_of(p, kTileRows, kTileColumns);
  return start_producer_consumer<InRectangles>(p, min(tiles, static_cast<unsigned>(p.sms)), stream);
}

}  // namespace gpuopt::matmul
