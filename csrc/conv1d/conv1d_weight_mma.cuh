// Weight gradients of the half types, along contiguous rows of step 1, on tensor cores. Of blocks of 8 places each, the values
// of the gradient are a row of B, and those of the input from the place under its first one on a column of A: D = A B
// holds in row m and column n the sum of products of all places n of a block with the input m places from its beginning on,
// so that a tap's gradient is the sum along a diagonal (PTX ISA, "Matrix Fragments for mma.m16n8k16").
#pragma once

#include "conv1d/conv1d_weight.cuh"

namespace gpuopt::conv1d {

struct WeightMmaArgs {
  WeightArgs base;
  uint32_t units;       // chunks of rows in all, of which a warp takes one after another
  uint32_t unit_tiles;  // of kMmaOutputs places
  uint32_t unit_packs;  // of the input, in shared memory
  uint32_t tap_count;   // of a block
  FastDiv row_units;
};

// D += A B of 128 places: A's columns are 16 packs of the input, from `input` on, and B's rows those of the gradient.
template <int kBlocks, typename T>
__device__ __forceinline__ void multiply_places(float (&sums)[kBlocks][4], const uint4* input,
                                                const uint4* grads, uint32_t blocks) {
  const uint32_t lane = threadIdx.x % 32;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const auto address_of = [](const uint4* packs) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(packs));
  };
  uint32_t b[2];
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(b[0]), "=r"(b[1])
               : "r"(address_of(grads + lane % 16)));
  const uint32_t address = address_of(input + lane % 8 + lane / 8 % 2 + lane / 16 * 8);
#pragma unroll
  for (int m = 0; m < kBlocks; ++m) {
    if (m < blocks) {
      uint32_t a[4];
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                   : "r"(address + m * 2 * kPackBytes));
      multiply_add_matrices<T>(sums[m], a, b);
    }
  }
#else
  const T* const from = reinterpret_cast<const T*>(input);
  const T* const grad = reinterpret_cast<const T*>(grads);
  for (uint32_t m = 0; m < blocks; ++m) {
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t row = 16 * m + lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      for (uint32_t block = 0; block < 16; ++block) {
        sums[m][i] += to_compute(from[8 * block + row]) * to_compute(grad[8 * block + column]);
      }
    }
  }
#endif
}

// kBlocks of 16 rows of D: taps up to 16 kBlocks - 15 places apart.
template <typename T, int kBlocks>
__global__ void __launch_bounds__(kChunkThreads, 6)
    weight_mma_kernel(const __grid_constant__ WeightMmaArgs args) {
  constexpr int N = kPackSize<T>, kWarps = kChunkThreads / 32, kTile = kMmaOutputs / N;
  constexpr int kOwnTaps = kBlocks / 2;  // of a lane
  extern __shared__ uint4 shared[];
  __shared__ uint64_t barriers[kWarps][2];
  __shared__ float products[kWarps][16 * kBlocks][8];
  let_next_grid_start();
  const WeightArgs& base = args.base;
  uint32_t out_channel = blockIdx.x;
  const uint32_t split = base.splits.divmod(out_channel);
  const uint32_t first_tap = base.tap_parts.divmod(out_channel) * args.tap_count;
  const uint32_t in_channel = base.in_parts.divmod(out_channel);
  const uint32_t group = out_channel / base.out_channels;
  const uint32_t taps = min(base.taps - first_tap, args.tap_count);
  const uint32_t lane = threadIdx.x % 32, own_warp = threadIdx.x / 32;
  const uint32_t grad_packs = args.unit_tiles * kTile, stage_packs = grad_packs + args.unit_packs;
  uint4* const stages = shared + own_warp * 2 * stage_packs;
  WarpCopies copies[2] = {WarpCopies(&barriers[own_warp][0]), WarpCopies(&barriers[own_warp][1])};
  wait_for_grid_before();

  const T* const from = static_cast<const T*>(base.from) +
                        (int64_t{group} * base.in_channels + in_channel) * base.from_channel;
  const T* const grad = static_cast<const T*>(base.grad) + out_channel * base.grad_channel;
  const auto dilation = static_cast<int32_t>(base.dilation);
  const int32_t offset =
      static_cast<int32_t>(first_tap) * dilation - static_cast<int32_t>(base.padding);
  struct Unit {
    const T *grads, *row;
    int32_t begin, ahead;  // the first place of the gradient; values in the input's first pack before the one under it
  };
  const auto unit_of = [&](uint32_t index) {
    uint32_t image = index;
    const uint32_t part = args.row_units.divmod(image);
    Unit unit;
    unit.grads = grad + image * base.grad_batch;
    unit.row = from + image * base.from_batch;
    unit.begin = static_cast<int32_t>(part * grad_packs * N) -
                 static_cast<int32_t>(reinterpret_cast<uintptr_t>(unit.grads) / sizeof(T) % N);
    unit.ahead = static_cast<int32_t>(reinterpret_cast<uintptr_t>(unit.row + unit.begin + offset) /
                                      sizeof(T) % N);
    return unit;
  };
  const auto copy_row = [&](WarpCopies& copy, const Rows<T>& rows, uint4* to, const T* row,
                            int32_t begin, int32_t size, int32_t packs) {
    const auto whole = rows.whole_packs(begin, size, packs);
    copy.copy(to + whole.low, reinterpret_cast<const uint4*>(row + begin) + whole.low,
              whole.high - whole.low);
    rows.fill_edges(whole, row, begin, size, packs, static_cast<int32_t>(lane), 32,
                    [&](int32_t q, const uint4& pack) { to[q] = pack; });
  };
  const auto copy = [&](const Unit& unit, uint32_t stage) {
    WarpCopies& own = stage == 0 ? copies[0] : copies[1];
    uint4* const to = stages + stage * stage_packs;
    copy_row(own, {base.grad_first_pack, base.grad_last_pack}, to, unit.grads, unit.begin,
             static_cast<int32_t>(base.grad_size), static_cast<int32_t>(grad_packs));
    copy_row(own, {base.from_first_pack, base.from_last_pack}, to + grad_packs, unit.row,
             unit.begin + offset - unit.ahead, static_cast<int32_t>(base.from_size),
             static_cast<int32_t>(args.unit_packs));
  };

  float sums[kBlocks][4] = {};
  float own_sums[kOwnTaps] = {};  // of taps lane, lane + 32 and so on
  // Adds the diagonals to these, and begins anew.
  const auto flush = [&](int32_t ahead) {
#pragma unroll
    for (int m = 0; m < kBlocks; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        products[own_warp][16 * m + lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2] = sums[m][i];
        sums[m][i] = 0;
      }
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kOwnTaps; ++i) {
      const uint32_t tap = lane + 32 * i;
      if (tap < taps) {
        const uint32_t row = tap * dilation + ahead;
#pragma unroll
        for (int n = 0; n < 8; ++n) own_sums[i] += products[own_warp][row + n][n];
      }
    }
    __syncwarp();
  };

  uint32_t unit = split * kWarps + own_warp;
  Unit next = unit_of(min(unit, args.units - 1));
  if (unit < args.units) copy(next, 0);
#pragma unroll 1
  for (uint32_t turn = 0; unit < args.units; ++turn) {
    const Unit own = next;
    const uint32_t stage = turn % 2;
    unit += base.splits.divisor * kWarps;
    if (unit < args.units) {
      next = unit_of(unit);
      copy(next, stage ^ 1);
    }
    (stage == 0 ? copies[0] : copies[1]).wait(turn / 2 % 2);
    __syncwarp();
    const uint4* const grads = stages + stage * stage_packs;
    const uint32_t blocks = ((taps - 1) * dilation + own.ahead + 7) / 16 + 1;
#pragma unroll 2
    for (uint32_t tile = 0; tile < args.unit_tiles; ++tile) {
      multiply_places<kBlocks, T>(sums, grads + grad_packs + tile * kTile, grads + tile * kTile,
                                  blocks);
    }
    WarpCopies::release();
    if (unit >= args.units || next.ahead != own.ahead) flush(own.ahead);
  }

#pragma unroll
  for (int i = 0; i < kOwnTaps; ++i) products[own_warp][lane + 32 * i][0] = own_sums[i];
  __syncthreads();
  for (uint32_t tap = threadIdx.x; tap < taps; tap += kChunkThreads) {
    float sum = products[0][tap][0];
#pragma unroll
    for (int other = 1; other < kWarps; ++other) sum += products[other][tap][0];
    if (sum != sum) {
      // Perhaps an infinite input under a place that the gradient doesn't have: one place after another.
      sum = 0;
      const auto from_size = static_cast<int32_t>(base.from_size);
      for (uint32_t i = split * kWarps; i < args.units; ++i) {
        if (i % kWarps == 0 && i != split * kWarps) i += (base.splits.divisor - 1) * kWarps;
        if (i >= args.units) break;
        const Unit own = unit_of(i);
        const int32_t end = min(own.begin + static_cast<int32_t>(grad_packs) * N,
                                static_cast<int32_t>(base.grad_size));
        for (int32_t place = max(own.begin, 0); place < end; ++place) {
          const int32_t under = place + offset + static_cast<int32_t>(tap) * dilation;
          const bool valid = static_cast<uint32_t>(under) < static_cast<uint32_t>(from_size);
          sum = multiply_add(to_compute(own.grads[place]),
                             valid ? to_compute(own.row[under]) : 0.0f, sum);
        }
      }
    }
    const int64_t index =
        (int64_t{out_channel} * base.in_channels + in_channel) * base.taps + first_tap + tap;
    emit_weight<T>(base, split, index, sum);
  }
}

}  // namespace gpuopt::conv1d
