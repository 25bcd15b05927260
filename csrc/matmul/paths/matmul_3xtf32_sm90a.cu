// 3xTF32 products by wgmma. The step "three_tf32_wgmma" of the ladder runs this kernel, too.
#include <utility>

#include "common/mbarrier.cuh"
#include "common/tensor_map.cuh"
#include "common/wgmma.cuh"
#include "matmul/device/matmul_fragments.cuh"
#include "matmul/device/matmul_parts.cuh"
#include "matmul/matmul_plan.h"

namespace gpuopt::matmul {
namespace {

// [three_tf32_wgmma]
// Warp 0 copies, warps 1 to 3 split B, and two warpgroups split their rows of A and
// multiply.
constexpr int kTile = kTileSize, kSlice = kSliceK, kRawStages = 4, kPartStages = 2;
constexpr int kSplitters = 3 * 32, kMultipliers = 8, kThreads = 384;

// Rows of 32 values are swizzled. kARows and kBRows say whether the values of a row of A or B are
// neighbours in memory. Otherwise the values of a column are.
struct Memory {
  struct Raw {
    float a[kTile / 32][32][32];  // kARows: [row][k], else four boxes [k][row]
    float b[kTile * kSlice];      // kBRows: [k][column] without a swizzle, else [column][k]
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

// What a block computes: a tile of one product, summed over k from k0 on.
struct Task {
  Tile tile;
  int k0, slices, a_batch, b_batch;
};

template <bool kARows, bool kBRows>
__device__ __forceinline__ void copy_slices(Memory& memory, const Maps& maps, const Task& task) {
  const int row = task.tile.row, column = task.tile.column;
  Ring<kRawStages> ring;
  for (int k = task.k0; k < task.k0 + task.slices * kSlice; k += kSlice) {
    Memory::Raw& raw = memory.raw[ring.stage];
    Barrier* const full = &memory.full[ring.stage];
    wait_barrier(&memory.empty[ring.stage], ring.parity ^ 1);
    arrive_expecting(full, sizeof(Memory::Raw));
    if constexpr (kARows) {
      copy_box(raw.a, maps.a, task.a_batch, row, k, full);
    } else {
#pragma unroll
      for (int i = 0; i < kTile / 32; ++i) {
        copy_box(raw.a[i], maps.a, task.a_batch, k, row + 32 * i, full);
      }
    }
    copy_box(raw.b, maps.b, task.b_batch, kBRows ? k : column, kBRows ? column : k, full);
    ring.next();
  }
}

// Splits slices of B. TF32 operands need the values of a column as neighbours, so rows are
// transposed.
template <bool kBRows>
__device__ __forceinline__ void split_slices(Memory& memory, int thread, int slices) {
  Ring<kRawStages> ring;
  Ring<kPartStages> out;
  for (int slice = 0; slice < slices; ++slice) {
    wait_barrier(&memory.full[ring.stage], ring.parity);
    wait_barrier(&memory.multiplied[out.stage], out.parity ^ 1);
    const auto* const raw = reinterpret_cast<const uint32_t*>(memory.raw[ring.stage].b);
    auto& parts = memory.parts[out.stage];
#pragma unroll 4
    for (int q = thread; q < kTile * kSlice / 4; q += kSplitters) {
      const int column = q % kTile, vec = q / kTile;
      const int to = kBRows ? column * (kSlice / 4) + (vec ^ column % 8) : q;
      Vec<uint32_t, 4> values, big, small;
      if constexpr (!kBRows) values = load_vec<uint32_t, 4>(raw + 4 * q);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if constexpr (kBRows) values.values[i] = raw[(4 * vec + i) * kTile + column];
        const Parts split = parts_of(values.values[i]);
        big.values[i] = split.big;
        small.values[i] = split.small;
      }
      store_vec(reinterpret_cast<uint32_t*>(parts.big[0] + to), big);
      store_vec(reinterpret_cast<uint32_t*>(parts.small[0] + to), small);
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

// Loads the warp's fragment of A, 16 rows from `row` on and 8 of k.
template <bool kARows>
__device__ __forceinline__ void load_a(uint32_t (&words)[4], const Memory::Raw& raw, int row,
                                       int k) {
  const int lane = threadIdx.x % 32;
  if constexpr (kARows) {
    const int thread_row = row + lane % 16, vec = k / 4 + lane / 16;
    load_matrices(words,
                  reinterpret_cast<const uint4*>(raw.a) + thread_row * 8 + (vec ^ thread_row % 8));
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int thread_row = row % 32 + lane / 4 + i % 2 * 8, thread_k = k + lane % 4 + i / 2 * 4;
      memcpy(&words[i],
             &raw.a[row / 32][thread_k][(thread_row / 4 ^ thread_k % 8) * 4 + thread_row % 4], 4);
    }
  }
}

// Sums leave the tensor cores after every slice. While one warpgroup adds them, the other
// multiplies.
template <bool kARows>
__device__ __forceinline__ void multiply_slices(float (&sums)[1][kTile / 8][4], Memory& memory,
                                                int row, int slices) {
  const bool is_first = threadIdx.x % 32 == 0;
  Ring<kRawStages> ring;
  Ring<kPartStages> in;
  for (int slice = 0; slice < slices; ++slice) {
    const auto& b = memory.parts[in.stage];
    uint32_t big[kSlice / 8][4], small[kSlice / 8][4];
    wait_barrier(&memory.full[ring.stage], ring.parity);
#pragma unroll
    for (int k = 0; k < kSlice / 8; ++k) {
      uint32_t words[4];
      load_a<kARows>(words, memory.raw[ring.stage], row, 8 * k);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Parts split = parts_of(words[i]);
        big[k][i] = split.big;
        small[k][i] = split.small;
      }
    }
    __syncwarp();
    if (is_first) arrive(&memory.empty[ring.stage]);
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
    if (is_first) arrive(&memory.multiplied[in.stage]);
#pragma unroll
    for (int q = 0; q < kTile / 2; ++q) sums[0][q / 4][q % 4] += slice_sums[q];
    ring.next();
    in.next();
  }
}

// `out` has the plan's parts, and in each of them the products of the batch.
template <bool kARows, bool kBRows>
__global__ void __launch_bounds__(kThreads)
    three_tf32_wgmma_kernel(const __grid_constant__ Maps maps, const __grid_constant__ Plan plan,
                            float* out, int tiles) {
  auto& memory = *reinterpret_cast<Memory*>(matmul_memory);
  const Problem& x = plan.problem;
  const int product = blockIdx.x / tiles, batch = product / plan.parts, part = product % plan.parts;
  const int k0 = part * plan.part_k, k_end = min(plan.part_k, x.k - k0) + k0;
  const Task task{tile_in_order(blockIdx.x % tiles, x.m, x.n, kTile, kTile, 16), k0,
                  (k_end - k0 + kSlice - 1) / kSlice, x.a.batch_stride == 0 ? 0 : batch,
                  x.b.batch_stride == 0 ? 0 : batch};
  const int warp = threadIdx.x / 32;
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
    if (threadIdx.x == 0) copy_slices<kARows, kBRows>(memory, maps, task);
    if (warp > 0) split_slices<kBRows>(memory, threadIdx.x - 32, task.slices);
    return;
  }
  take_registers<232>();
  const int row = (warp - 4) * 16;
  float sums[1][kTile / 8][4] = {};
  multiply_slices<kARows>(sums, memory, row, task.slices);
  out += (part * x.batch + batch) * x.m * x.n;
  store_fragments(sums, out, x.m, x.n, task.tile.row + row, task.tile.column);
  recompute_nan(sums, out, x.m, x.n, task.tile.row + row, task.tile.column, [&](int i, int j) {
    const float* const a = x.a.data + task.a_batch * x.a.batch_stride + i * x.a.row_stride;
    const float* const b = x.b.data + task.b_batch * x.b.batch_stride + j * x.b.column_stride;
    float sum = 0;
    for (int k = k0; k < k_end; ++k) {
      sum = fmaf(a[k * x.a.column_stride], b[k * x.b.row_stride], sum);
    }
    return sum;
  });
}
// [three_tf32_wgmma]

// The map of a matrix [rows][columns] whose rows lie in memory, or of its transpose.
cudaError_t make_map(TensorMap& map, const Operand& x, int64_t batch, int rows, int columns,
                     int box_rows, int box_columns, Swizzle swizzle, bool in_rows) {
  if (!in_rows) std::swap(rows, columns);
  const int64_t stride = in_rows ? x.row_stride : x.column_stride;
  // A single row has any stride.
  const int64_t pitch = rows == 1 ? ceil_div<int64_t>(columns, 4) * 4 : stride;
  const MapBatch matrices{x.batch_stride == 0 ? 1 : batch, x.batch_stride};
  return make_tensor_map(map, DType::kFloat32, x.data, rows, columns, pitch, box_rows, box_columns,
                         swizzle, matrices);
}

template <bool kARows, bool kBRows>
cudaError_t start(const Plan& plan, float* out, cudaStream_t stream) {
  const Problem& x = plan.problem;
  Maps maps;
  cudaError_t error =
      make_map(maps.a, x.a, x.batch, x.m, x.k, kARows ? kTile : 32, 32, Swizzle::k128, kARows);
  if (error != cudaSuccess) return error;
  error = make_map(maps.b, x.b, x.batch, x.k, x.n, kBRows ? kSlice : kTile, kBRows ? kTile : kSlice,
                   kBRows ? Swizzle::kNone : Swizzle::k128, kBRows);
  if (error != cudaSuccess) return error;
  const int tiles = ceil_div(x.m, kTile) * ceil_div(x.n, kTile);
  const auto blocks = static_cast<unsigned>(int64_t{tiles} * plan.parts * x.batch);
  return launch_kernel(three_tf32_wgmma_kernel<kARows, kBRows>, {blocks, kThreads, sizeof(Memory)},
                       stream, maps, plan, out, tiles);
}

}  // namespace

cudaError_t launch(const Plan& plan, Workspace& workspace, cudaStream_t stream) {
  const Problem& x = plan.problem;
  const int64_t outputs = x.batch * x.m * x.n;
  const bool splits = plan.parts > 1;
  float* const out =
      splits ? static_cast<float*>(workspace.allocate(plan.parts * outputs * sizeof(float)))
             : x.out;
  const bool a_rows = has_rows(x.a, x.m, x.k), b_rows = has_rows(x.b, x.k, x.n);
  const auto kernel = a_rows ? (b_rows ? start<true, true> : start<true, false>)
                             : (b_rows ? start<false, true> : start<false, false>);
  const cudaError_t error = kernel(plan, out, stream);
  if (error != cudaSuccess || !splits) return error;
  return add_parts(out, x.out, outputs, plan.parts, stream);
}

}  // namespace gpuopt::matmul
