// The kernels of paths kColumns and kSplitColumns, for scans along a dimension that is not the
// innermost. Each thread has the columns of one unit, in neighbouring rows. A warp
// is x units wide and 32 / x threads high, and the warps of a block lie below each other:
//
//                 x = 8 units of 4 columns
//   warp 0   | lanes  0 to  7 |   rows  0 to  7
//            | lanes  8 to 15 |   rows  8 to 15
//            | lanes 16 to 23 |   rows 16 to 23
//            | lanes 24 to 31 |   rows 24 to 31
//   warp 1   | lanes  0 to  7 |   rows 32 to 39 ...
#pragma once

#include "common/recomputed.cuh"
#include "scan/device/scan_column_tile.cuh"
#include "scan/device/scan_look_back.cuh"
#include "scan/device/scan_shared_tile.cuh"

namespace gpuopt::scan {

template <typename Op, int N, bool kShared>
__device__ __forceinline__ ColumnPlace<N> column_place(const ColumnArgs<kShared>& args,
                                                       uint32_t block) {
  if constexpr (kShared) {
    return tile_place<Op>(args, block);
  } else {
    return unit_place<Op, N>(args, block);
  }
}

// Puts the totals of each level's columns into shared memory: [levels][x * N].
template <int N, bool kShared, typename V>
__device__ __forceinline__ void share_totals(const Args& args, const V (&totals)[N], V* shared) {
  const uint32_t width = threads_of_level<kShared>(args), thread = threadIdx.x % width;
  if (thread < width - args.x) return;
#pragma unroll
  for (int v = 0; v < N; ++v) {
    shared[threadIdx.x / width * args.x * N + (thread - (width - args.x)) * N + v] = totals[v];
  }
}

// Replaces the total of each level in a column by the result of the levels above. `carry` is that
// of all tiles before. Returns the total of the column in this tile.
template <typename Op>
__device__ __forceinline__ typename Op::Carry scan_levels(const Op& op, typename Op::Carry carry,
                                                          uint32_t levels, uint32_t stride,
                                                          typename Op::Value* totals) {
  auto all = op.widen(op.identity());
  constexpr int kAtOnce = sizeof(all) > 8 ? 1 : 4;  // more would spill registers
#pragma unroll kAtOnce
  for (uint32_t w = 0; w < levels; ++w) {
    const auto own = op.widen(totals[w * stride]);
    totals[w * stride] = op.narrow(op.carry(carry, all));
    all = w == 0 ? own : op.carry(all, own);
  }
  return all;
}

template <typename Op, typename In, typename Mid, int N, bool kShared>
using AnyColumnTile =
    std::conditional_t<kShared, SharedColumnTile<Op, In, Mid>, ColumnTile<Op, In, Mid, N>>;

// The columns of a block.
template <int N, bool kShared>
constexpr int kBlockColumns = kShared ? kThreads : kWarp * N;

// A block scans its columns, tile by tile, while it loads the next tile.
template <typename Op, typename In, typename Mid, int N, bool kShared>
__global__ void __launch_bounds__(kThreads, sizeof(typename Op::Value) > 8 ? 2 : 3)
    columns_kernel(const Op op, const __grid_constant__ ColumnArgs<kShared> args) {
  using V = typename Op::Value;
  using Carry = typename Op::Carry;
  using Tile = AnyColumnTile<Op, In, Mid, N, kShared>;
  __shared__ V totals[2][kMaxWarps * kWarp * N];
  __shared__ Carry carries[kBlockColumns<N, kShared>];
  launch_next();
  grid_dependency_wait();
  const ColumnPlace<N> place = column_place<Op, N, kShared>(args, blockIdx.x);
  const uint32_t width = args.x * N, level = threadIdx.x / threads_of_level<kShared>(args);
  const uint32_t levels = blockDim.x / threads_of_level<kShared>(args);
  const bool is_whole = args.length <= args.units;  // a thread has all rows of its columns
  for (uint32_t c = threadIdx.x; c < width && !is_whole; c += blockDim.x) {
    carries[c] = op.widen(op.identity());
  }
  Tile next(args);
  next.load(args, place, 0);
  end_copy_group();
  for (uint32_t t = 0; t < args.tiles.divisor; ++t) {
    const Tile tile = next;
    if constexpr (kShared) {
      // After the barrier, all copies of this tile have arrived, and nobody reads the last one.
      wait_for_copies();
      __syncthreads();
    }
    next = Tile(args, (t + 1) % 2);
    if (t + 1 < args.tiles.divisor) next.load(args, place, t + 1);
    end_copy_group();
    if constexpr (!kShared) wait_for_copy_groups<1>();
    V before[N];
    if (is_whole) {
#pragma unroll
      for (int v = 0; v < N; ++v) before[v] = op.identity();
    } else {
      V own[N];
      tile.scan(op, args, place, own, before);
      // Two arrays alternate, so no barrier follows the last use of one.
      share_totals<N, kShared>(args, own, totals[t % 2]);
      __syncthreads();
      for (uint32_t c = threadIdx.x; c < width; c += blockDim.x) {
        const Carry carry = carries[c];
        carries[c] = op.carry(carry, scan_levels(op, carry, levels, width, totals[t % 2] + c));
      }
      __syncthreads();
#pragma unroll
      for (int v = 0; v < N; ++v) {
        before[v] = op.combine(totals[t % 2][level * width + place.column + v], before[v]);
      }
    }
    tile.store(op, args, place, before);
  }
}

// Computes and shares the totals of the columns in a tile, as ColumnTile::scan does, from the
// input. All threads call this.
template <typename Op, typename In, typename Mid, int N, bool kShared>
__device__ void share_tile(const Op& op, const ColumnArgs<kShared>& args,
                           const ColumnPlace<N>& place, uint32_t tile, typename Op::Value* totals) {
  using V = typename Op::Value;
  using M = Memory<Op, In, Mid, N>;
  const bool active = place.active;
  Offsets columns = place.offsets;
  if constexpr (kShared) {
#pragma unroll
    for (int d = 0; d < 2; ++d) {
      columns.in += int64_t{place.indices[d]} * args.tensors[0].strides[d + 1];
      columns.second += int64_t{place.indices[d]} * args.tensors[2].strides[d + 1];
    }
  }
  V own[N];
#pragma unroll
  for (int v = 0; v < N; ++v) own[v] = op.identity();
#pragma unroll 1
  for (uint32_t r = 0; r < args.units; ++r) {
    const int64_t position = first_row(args, tile) + r;
    const int64_t row = args.reverse ? args.length - 1 - position : position;
    const Offsets offsets[1] = {columns.at<Op>(args, row)};
    const int valid[1] = {active && position < args.length ? N : 0};
    typename M::Raw raw[1];
    M::load(args, offsets, valid, raw);
#pragma unroll
    for (int v = 0; v < N; ++v) {
      const auto in = M::started(op, args, M::input(op, raw[0], v), position == 0 && active,
                                 columns.initial + v * args.initial_column_stride);
      own[v] = op.combine(own[v], op.value(in, position == 0));
    }
  }
#pragma unroll
  for (int v = 0; v < N; ++v) own[v] = scan_column(op, args, own[v]);
  __syncthreads();
  share_totals<N, kShared>(args, own, totals);
  __syncthreads();
}

// Columns that a warp looks back for at once.
template <typename Op>
constexpr int kLookBackColumns = kRecords<typename Op::Carry> <= 2 ? 2 : 1;

// Finds the results of all tiles before a tile. Each warp does it for C columns at once. Returns
// false if its patience ended.
template <int C, typename Op>
__device__ __forceinline__ bool look_back_columns(const Op& op, const Chain<Op>& chain,
                                                  uint32_t tile, const typename Op::Carry* own,
                                                  typename Op::Carry* carries, uint32_t width) {
  const uint32_t warps = blockDim.x / kWarp;
  for (uint32_t c = threadIdx.x / kWarp; c < width; c += warps * C) {
    const auto total = [&](int i) { return own[c + i * warps]; };
    const auto found = [&](int i, const Before<Op>& before) {
      if (threadIdx.x % kWarp == 0) carries[c + i * warps] = before.all(op);
    };
    if (!chain.column(c).template look_back<C>(op, tile, warps, total, found)) return false;
  }
  return true;
}

// Computes the results of all tiles before a tile from the input, for all columns of the block, and
// publishes what the tile ends. All threads call this. Each warp computes one column at a time.
template <typename Op, typename In, typename Mid, int N, bool kShared>
__device__ void recount_columns(const Op& op, const ColumnArgs<kShared>& args,
                                const ColumnPlace<N>& place, const Chain<Op>& chain, uint32_t tile,
                                typename Op::Value* totals, const typename Op::Carry* own,
                                typename Op::Carry* carries) {
  const uint32_t width = args.x * N, warps = blockDim.x / kWarp;
  const uint32_t levels = blockDim.x / threads_of_level<kShared>(args);
#pragma unroll 1
  for (uint32_t first = 0; first < width; first += warps) {
    const uint32_t c = first + threadIdx.x / kWarp;
    Recount<Op> recount(op);
#pragma unroll 1
    for (uint32_t t = 0; t < tile; ++t) {
      share_tile<Op, In, Mid, N, kShared>(op, args, place, t, totals);
      if (c >= width) continue;
      auto all = op.widen(totals[c]);
#pragma unroll 1
      for (uint32_t w = 1; w < levels; ++w) all = op.carry(all, op.widen(totals[w * width + c]));
      recount.add(op, all);
    }
    const Before<Op> before = recount.result(op);
    if (c >= width || threadIdx.x % kWarp != 0) continue;
    carries[c] = before.all(op);
    chain.column(c).publish_ends(op, tile, before, own[c]);
  }
  __syncthreads();
}

// Every tile has a block, and look-back connects the tiles of the same columns.
template <typename Op, typename In, typename Mid, int N, bool kShared>
__global__ void __launch_bounds__(kThreads, sizeof(typename Op::Carry) > 8 ? 2 : 3)
    split_columns_kernel(const Op op, const __grid_constant__ ColumnArgs<kShared> args) {
  using V = typename Op::Value;
  using Carry = typename Op::Carry;
  constexpr int C = kLookBackColumns<Op>;
  __shared__ V totals[kMaxWarps * kWarp * N];
  __shared__ Carry own_carries[kBlockColumns<N, kShared>];
  __shared__ Carry carries[kBlockColumns<N, kShared>];
  __shared__ int missing[1];
  launch_next();
  grid_dependency_wait();
  // Neighbouring blocks have the same tile of neighbouring columns, and so neighbouring memory.
  const uint32_t chains = gridDim.x / args.tiles.divisor;
  const uint32_t t = blockIdx.x / chains;
  const ColumnPlace<N> place = column_place<Op, N, kShared>(args, blockIdx.x - t * chains);
  const uint32_t width = args.x * N, level = threadIdx.x / threads_of_level<kShared>(args);
  const uint32_t warps = blockDim.x / kWarp, levels = blockDim.x / threads_of_level<kShared>(args);
  Record* records =
      static_cast<Record*>(args.records) + place.chain * args.slots * width * kRecords<Carry>;
  const Chain<Op> chain{records, args.slots, args.tiles.divisor, args.patience};
  AnyColumnTile<Op, In, Mid, N, kShared> tile(args);
  tile.load(args, place, t);
  wait_for_copies();
  if constexpr (kShared) __syncthreads();  // copies of other threads
  V own[N], before[N];
  tile.scan(op, args, place, own, before);
  share_totals<N, kShared>(args, own, totals);
  if (threadIdx.x == 0) missing[0] = 0;
  __syncthreads();
  for (uint32_t c = threadIdx.x; c < width; c += blockDim.x) {
    const Carry all = scan_levels(op, op.widen(op.identity()), levels, width, totals + c);
    own_carries[c] = all;
    chain.column(c).publish_tile(t, all);
  }
  __syncthreads();

  const bool found = width >= warps * C
                         ? look_back_columns<C>(op, chain, t, own_carries, carries, width)
                         : look_back_columns<1>(op, chain, t, own_carries, carries, width);
  if (!found) missing[0] = 1;
  __syncthreads();
  if (missing[0] != 0) {
    recount_columns<Op, In, Mid, N, kShared>(op, args, place, chain, t, totals, own_carries,
                                             carries);
    // What the recount has overwritten.
    tile.scan(op, args, place, own, before);
    share_totals<N, kShared>(args, own, totals);
    __syncthreads();
    for (uint32_t c = threadIdx.x; c < width; c += blockDim.x) {
      scan_levels(op, op.widen(op.identity()), levels, width, totals + c);
    }
    __syncthreads();
  }
#pragma unroll
  for (int v = 0; v < N; ++v) {
    before[v] = op.combine(totals[level * width + place.column + v], before[v]);
  }
#pragma unroll
  for (int v = 0; v < N; ++v) {
    before[v] = op.narrow(op.carry(carries[place.column + v], op.widen(before[v])));
  }
  const ColumnPlace<N> result =
      column_place<Op, N, kShared>(args, recomputed(blockIdx.x) - t * chains);
  tile.store(op, args, result, before);
}

}  // namespace gpuopt::scan
