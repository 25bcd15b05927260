// The step "clusters" of matmul_ladder.h.
#include "common/cluster.cuh"
#include "matmul/ladder/matmul_ladder_hopper.cuh"

namespace gpuopt::matmul {
namespace {

// [clusters]
// The tiles of a cluster of one or two blocks lie one below the other.
struct ClusterMemory {
  Memory tiles;
  alignas(1024) uint16_t out[kWarpgroups][2][kWarpgroupRows][64];  // two boxes for each warpgroup
};

struct ClusterMaps {
  Maps in;
  TensorMap out;
};

// Copies the block's rows of A, and its share of the columns of B to all blocks.
__device__ __forceinline__ void copy_slice(Memory& memory, int stage, const Maps& maps,
                                           const Tile& tile, int k0, int block, int blocks) {
  Barrier* const full = &memory.full[stage];
  arrive_expecting(full, sizeof(Memory::Slice));
  copy_box(memory.slices[stage].a, maps.a, tile.row, k0, full);
  const auto mask = static_cast<uint16_t>((1 << blocks) - 1);
  for (int box = block; box < kTileColumns / 64; box += blocks) {
    copy_box_to_blocks(memory.slices[stage].b[box], maps.b, k0, tile.column + 64 * box, full, mask);
  }
}

// Stores the sums of a warpgroup by boxes of 64 columns. While one box is read, the next one
// is written.
template <typename T>
__device__ __forceinline__ void store_boxes(const float (&sums)[128],
                                            uint16_t (&boxes)[2][kWarpgroupRows][64],
                                            const TensorMap& map, int row, int column,
                                            int warpgroup) {
  const int warp_row = static_cast<int>(threadIdx.x % 128 / 32) * 16;
  const bool stores = threadIdx.x % 128 == 0;
#pragma unroll
  for (int box = 0; box < kTileColumns / 64; ++box) {
    if (stores) wait_for_box_reads<1>();
    sync_warps(1 + warpgroup, 128);  // the stores have read this box
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = warp_row + fragment_row(half);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const int first = 4 * (8 * box + j) + 2 * half;
        uint16_t* const to = &boxes[box % 2][r][(j ^ r % 8) * 8 + fragment_column()];
        store_vec(reinterpret_cast<T*>(to),
                  Vec<T, 2>{from_compute<T>(sums[first]), from_compute<T>(sums[first + 1])});
      }
    }
    fence_for_bulk_copies();
    sync_warps(1 + warpgroup, 128);
    if (stores) store_box(map, row, column + 64 * box, boxes[box % 2]);
  }
}

template <typename T>
__global__ void __launch_bounds__((1 + kWarpgroups) * 128)
    clusters_kernel(const __grid_constant__ ClusterMaps maps, int m, int n, int k, int blocks,
                    int clusters) {
  auto& memory = *reinterpret_cast<ClusterMemory*>(matmul_memory);
  const int slices = (k + kSlice - 1) / kSlice, warpgroup = static_cast<int>(threadIdx.x / 128) - 1;
  const int block = blockIdx.x % blocks, cluster = blockIdx.x / blocks;
  const int step = gridDim.x / blocks;  // clusters of the grid
  const auto tile_of_cluster = [&](int index) {
    Tile tile = tile_in_order(index, m, n, blocks * kTileRows, kTileColumns, 8);
    tile.row += block * kTileRows;
    return tile;
  };
  if (threadIdx.x == 0) init_barriers(memory.tiles, blocks * kWarpgroups * 4);
  __syncthreads();
  arrive_in_cluster();
  wait_for_cluster();
  Ring<kStages> ring;
  if (warpgroup < 0) {
    release_registers<40>();
    if (threadIdx.x == 0) {
      for (int index = cluster; index < clusters; index += step) {
        const Tile tile = tile_of_cluster(index);
        for (int slice = 0; slice < slices; ++slice) {
          // All warps of all blocks have read the stage.
          wait_barrier(&memory.tiles.empty[ring.stage], ring.parity ^ 1);
          copy_slice(memory.tiles, ring.stage, maps.in, tile, slice * kSlice, block, blocks);
          ring.next();
        }
      }
    }
    __syncwarp();
  } else {
    take_registers<232>();
    for (int index = cluster; index < clusters; index += step) {
      const Tile tile = tile_of_cluster(index);
      float sums[128];
      multiply_tile<T>(sums, memory.tiles, ring, slices, warpgroup, [&](int stage) {
        if (threadIdx.x % 32 < blocks)
          arrive_in_block(&memory.tiles.empty[stage], threadIdx.x % 32);
      });
      store_boxes<T>(sums, memory.out[warpgroup], maps.out, tile.row + kWarpgroupRows * warpgroup,
                     tile.column, warpgroup);
    }
    if (threadIdx.x % 128 == 0) wait_for_box_reads<0>();
    __syncwarp();
  }
  // The other block still arrives at this block's barriers.
  arrive_in_cluster();
  wait_for_cluster();
}
// [clusters]

}  // namespace

cudaError_t clusters(const LadderProblem& p, Workspace& workspace, cudaStream_t stream) {
  // Bulk copies store rows that begin at multiples of 16 bytes.
  if (p.n % 8 != 0) return persistent(p, workspace, stream);
  return with_half(p, [&](auto type) {
    using T = decltype(type);
    ClusterMaps maps = {};
    cudaError_t error = make_maps(maps.in, p);
    if (error != cudaSuccess) return error;
    error =
        make_tensor_map(maps.out, p.dtype, p.out, p.m, p.n, p.n, kWarpgroupRows, 64, Swizzle::k128);
    if (error != cudaSuccess) return error;
    const unsigned blocks = p.m > kTileRows && p.sms > 1 ? 2 : 1;
    const unsigned clusters = tiles_of(p, blocks * kTileRows, kTileColumns);
    const unsigned most = static_cast<unsigned>(p.sms) / blocks;
    LaunchShape shape{blocks * min(clusters, most), (1 + kWarpgroups) * 128, sizeof(ClusterMemory)};
    shape.cluster = blocks;
    return launch_kernel(clusters_kernel<T>, shape, stream, maps, p.m, p.n, p.k,
                         static_cast<int>(blocks), static_cast<int>(clusters));
  });
}

}  // namespace gpuopt::matmul
