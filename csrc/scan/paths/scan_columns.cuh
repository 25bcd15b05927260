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
#include "scan/device/scan_look_back.cuh"
#include "scan/device/scan_stage.cuh"

namespace gpuopt::scan {

// The row of the thread's first value in a tile, in the order of the scan. A thread has args.units
// rows.
__device__ __forceinline__ int64_t first_row(const Args& args, int64_t tile) {
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const uint32_t high = kWarp / args.x, warps = blockDim.x / kWarp;
  return ((tile * warps + warp) * high + lane / args.x) * args.units;
}

// The inclusive scan over the threads of a warp that hold the same columns.
template <typename Op>
__device__ __forceinline__ typename Op::Value scan_column(const Op& op, const Args& args,
                                                          typename Op::Value total) {
  for (uint32_t distance = args.x; distance < kWarp; distance *= 2) {
    const auto above = shuffle_up(total, distance);
    if (threadIdx.x % kWarp >= distance) total = op.combine(above, total);
  }
  return total;
}

// A thread's part of a tile, in shared memory.
template <typename Op, typename In, typename Mid, int N>
struct ColumnTile {
  using V = typename Op::Value;
  using M = Memory<Op, In, Mid, N>;
  using S = Stage<Op, In, Mid, N>;

  S stage;
  int64_t initial = 0;  // offset of the initial value of the thread's first column
  int64_t first = 0;    // row of the thread, in the order of the scan
  uint32_t rows = 0;    // of the thread that exist

  __device__ __forceinline__ explicit ColumnTile(const Args& args, uint32_t buffer = 0)
      : stage(buffer, args.units) {}

  // The offset of the thread's first row in one of the tensors, and from row to row.
  __device__ __forceinline__ int64_t start(const Args& args, int64_t offset, int64_t stride) const {
    return offset + (args.reverse ? args.length - 1 - first : first) * stride;
  }
  __device__ __forceinline__ static int64_t step(const Args& args, int64_t stride) {
    return args.reverse ? -stride : stride;
  }

  // Value v of row r. Columns keep their order when the rows are reversed.
  __device__ __forceinline__ typename Op::Input input(const Op& op, const Args& args,
                                                      const typename M::Raw& raw, uint32_t r,
                                                      int v) const {
    const auto own = M::input(op, raw, v);
    return M::started(op, args, own, r == 0 && first == 0 && rows > 0,
                      initial + v * args.initial_column_stride);
  }

  // Starts to copy a tile.
  __device__ __forceinline__ void load(const Args& args, const Offsets& columns, bool active,
                                       int64_t tile) {
    first = first_row(args, tile);
    initial = columns.initial;
    const int64_t left = active ? args.length - first : 0;
    rows = static_cast<uint32_t>(max(int64_t{0}, min(int64_t{args.units}, left)));
    Offsets next;
    next.in = start(args, columns.in, args.in_stride);
    if constexpr (Op::kInputs == 2) next.second = start(args, columns.second, args.second_stride);
    for (uint32_t r = 0; r < args.units; r += S::kBatch) {
      Offsets offsets[S::kBatch];
      int valid[S::kBatch];
#pragma unroll
      for (int i = 0; i < S::kBatch; ++i) {
        valid[i] = r + i < rows ? N : 0;
        offsets[i] = next;
        next.in += step(args, args.in_stride);
        if constexpr (Op::kInputs == 2) next.second += step(args, args.second_stride);
      }
      stage.load(args, r, offsets, valid);
    }
  }

  // Scans the warp's rows. The lanes of the last row get the totals of the columns.
  // before[v]: the exclusive scan over the warp's rows, per column.
  __device__ __forceinline__ void scan(const Op& op, const Args& args, V (&totals)[N],
                                       V (&before)[N]) const {
#pragma unroll
    for (int v = 0; v < N; ++v) totals[v] = op.identity();
#pragma unroll 4
    for (uint32_t r = 0; r < args.units; ++r) {
      const auto raw = stage.get(args, r);
#pragma unroll
      for (int v = 0; v < N; ++v) {
        const auto in = input(op, args, raw, r, v);
        totals[v] = op.combine(totals[v], op.value(in, r == 0 && first == 0));
      }
    }
    const uint32_t lane = threadIdx.x % kWarp;
#pragma unroll
    for (int v = 0; v < N; ++v) {
      totals[v] = scan_column(op, args, totals[v]);
      before[v] = shuffle_up(totals[v], args.x);
      if (lane < args.x) before[v] = op.identity();
    }
  }

  // Stores the results. base[v] is the result of everything above the thread's rows.
  __device__ __forceinline__ void store(const Op& op, const Args& args, int64_t offset,
                                        const V (&base)[N]) const {
    V local[N];  // if kInTurn, the result so far
    int64_t out = start(args, offset, args.out_stride);
#pragma unroll
    for (int v = 0; v < N; ++v) local[v] = Op::kInTurn ? base[v] : op.identity();
#pragma unroll 4
    for (uint32_t r = 0; r < args.units; ++r) {
      const auto raw = stage.get(args, r);
      typename Op::Stored results[N];
#pragma unroll
      for (int v = 0; v < N; ++v) {
        const auto in = input(op, args, raw, r, v);
        const V above = local[v];
        local[v] = op.combine(above, op.value(in, r == 0 && first == 0));
        if constexpr (Op::kInTurn) {
          results[v] = op.result(above, local[v], in, args.exclusive);
        } else {
          results[v] = op.result(op.combine(base[v], above), op.combine(base[v], local[v]), in,
                                 args.exclusive);
        }
      }
      M::store_in_order(args, out, r < rows ? N : 0, results);
      out += step(args, args.out_stride);
    }
  }
};

// The columns of a thread: their offsets at row 0, and whether they exist.
struct ColumnPlace {
  Offsets offsets;
  uint32_t chain;   // of look-back
  uint32_t column;  // of the block, times N
  bool active;
};

template <typename Op, int N>
__device__ __forceinline__ ColumnPlace column_place(const Args& args, uint32_t block) {
  ColumnPlace place;
  place.chain = block;
  const uint32_t x = threadIdx.x % kWarp % args.x;
  const int64_t column = (int64_t{args.column_tiles.divmod(block)} * args.x + x) * N;
  place.offsets = row_offsets<Op>(args.outer, block);
  place.offsets.in += column * args.in_column_stride;
  place.offsets.out += column * args.out_column_stride;
  if constexpr (Op::kInputs == 2) {
    place.offsets.second += column * args.second_column_stride;
    place.offsets.initial += column * args.initial_column_stride;
  }
  place.column = x * N;
  place.active = column < args.columns;
  return place;
}

// Puts the totals of each warp's columns into shared memory: [warps][x * N].
template <int N, typename V>
__device__ __forceinline__ void share_totals(const Args& args, const V (&totals)[N], V* shared) {
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  if (lane < kWarp - args.x) return;
#pragma unroll
  for (int v = 0; v < N; ++v) {
    shared[warp * args.x * N + (lane - (kWarp - args.x)) * N + v] = totals[v];
  }
}

// Replaces the total of each warp in a column by the result of the warps above. `carry` is that of
// all tiles before. Returns the total of the column in this tile.
template <typename Op>
__device__ __forceinline__ typename Op::Carry scan_warps(const Op& op, typename Op::Carry carry,
                                                         uint32_t stride,
                                                         typename Op::Value* totals) {
  auto all = op.widen(op.identity());
  constexpr int kAtOnce = sizeof(all) > 8 ? 1 : 4;  // more would spill registers
#pragma unroll kAtOnce
  for (uint32_t w = 0; w < blockDim.x / kWarp; ++w) {
    const auto own = op.widen(totals[w * stride]);
    totals[w * stride] = op.narrow(op.carry(carry, all));
    all = w == 0 ? own : op.carry(all, own);
  }
  return all;
}

// A block scans its columns, tile by tile, while it loads the next tile.
template <typename Op, typename In, typename Mid, int N>
__global__ void __launch_bounds__(kThreads, sizeof(typename Op::Value) > 8 ? 2 : 3)
    columns_kernel(const Op op, const __grid_constant__ Args args) {
  using V = typename Op::Value;
  using Carry = typename Op::Carry;
  __shared__ V totals[2][kMaxWarps * kWarp * N];
  __shared__ Carry carries[kWarp * N];
  launch_dependents();
  grid_dependency_wait();
  const ColumnPlace place = column_place<Op, N>(args, blockIdx.x);
  const uint32_t width = args.x * N, warp = threadIdx.x / kWarp;
  for (uint32_t c = threadIdx.x; c < width; c += blockDim.x) {
    carries[c] = op.widen(op.identity());
  }
  ColumnTile<Op, In, Mid, N> next(args);
  next.load(args, place.offsets, place.active, 0);
  end_copy_group();
  for (uint32_t t = 0; t < args.tiles.divisor; ++t) {
    const ColumnTile<Op, In, Mid, N> tile = next;
    next = ColumnTile<Op, In, Mid, N>(args, (t + 1) % 2);
    if (t + 1 < args.tiles.divisor) next.load(args, place.offsets, place.active, t + 1);
    end_copy_group();
    wait_for_copy_groups<1>();
    V own[N], before[N];
    tile.scan(op, args, own, before);
    // Two arrays alternate, so no barrier follows the last use of one.
    share_totals<N>(args, own, totals[t % 2]);
    __syncthreads();
    for (uint32_t c = threadIdx.x; c < width; c += blockDim.x) {
      const Carry carry = carries[c];
      carries[c] = op.carry(carry, scan_warps(op, carry, width, totals[t % 2] + c));
    }
    __syncthreads();
#pragma unroll
    for (int v = 0; v < N; ++v) {
      before[v] = op.combine(totals[t % 2][warp * width + place.column + v], before[v]);
    }
    tile.store(op, args, place.offsets.out, before);
  }
}

// Computes and shares the totals of the columns in a tile, as ColumnTile::scan does, from the
// input. All threads call this.
template <typename Op, typename In, typename Mid, int N>
__device__ void share_tile(const Op& op, const Args& args, const Offsets& columns, bool active,
                           uint32_t tile, typename Op::Value* totals) {
  using V = typename Op::Value;
  using M = Memory<Op, In, Mid, N>;
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
  share_totals<N>(args, own, totals);
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
template <typename Op, typename In, typename Mid, int N>
__device__ void recount_columns(const Op& op, const Args& args, const Offsets& columns, bool active,
                                const Chain<Op>& chain, uint32_t tile, typename Op::Value* totals,
                                const typename Op::Carry* own, typename Op::Carry* carries) {
  const uint32_t width = args.x * N, warps = blockDim.x / kWarp;
#pragma unroll 1
  for (uint32_t first = 0; first < width; first += warps) {
    const uint32_t c = first + threadIdx.x / kWarp;
    Recount<Op> recount(op);
#pragma unroll 1
    for (uint32_t t = 0; t < tile; ++t) {
      share_tile<Op, In, Mid, N>(op, args, columns, active, t, totals);
      if (c >= width) continue;
      auto all = op.widen(totals[c]);
#pragma unroll 1
      for (uint32_t w = 1; w < warps; ++w) all = op.carry(all, op.widen(totals[w * width + c]));
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
template <typename Op, typename In, typename Mid, int N>
__global__ void __launch_bounds__(kThreads, sizeof(typename Op::Carry) > 8 ? 2 : 3)
    split_columns_kernel(const Op op, const __grid_constant__ Args args) {
  using V = typename Op::Value;
  using Carry = typename Op::Carry;
  constexpr int C = kLookBackColumns<Op>;
  __shared__ V totals[kMaxWarps * kWarp * N];
  __shared__ Carry own_carries[kWarp * N];
  __shared__ Carry carries[kWarp * N];
  __shared__ int missing[1];
  launch_dependents();
  grid_dependency_wait();
  // Neighbouring blocks have the same tile of neighbouring columns, and so neighbouring memory.
  const uint32_t chains = gridDim.x / args.tiles.divisor;
  const uint32_t t = blockIdx.x / chains;
  const ColumnPlace place = column_place<Op, N>(args, blockIdx.x - t * chains);
  const uint32_t width = args.x * N;
  const uint32_t warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  Record* records =
      static_cast<Record*>(args.records) + place.chain * args.slots * width * kRecords<Carry>;
  const Chain<Op> chain{records, args.slots, args.tiles.divisor, args.patience};
  ColumnTile<Op, In, Mid, N> tile(args);
  tile.load(args, place.offsets, place.active, t);
  wait_for_copies();
  V own[N], before[N];
  tile.scan(op, args, own, before);
  share_totals<N>(args, own, totals);
  if (threadIdx.x == 0) missing[0] = 0;
  __syncthreads();
  for (uint32_t c = threadIdx.x; c < width; c += blockDim.x) {
    const Carry all = scan_warps(op, op.widen(op.identity()), width, totals + c);
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
    recount_columns<Op, In, Mid, N>(op, args, place.offsets, place.active, chain, t, totals,
                                    own_carries, carries);
    // What the recount has overwritten.
    tile.scan(op, args, own, before);
    share_totals<N>(args, own, totals);
    __syncthreads();
    for (uint32_t c = threadIdx.x; c < width; c += blockDim.x) {
      scan_warps(op, op.widen(op.identity()), width, totals + c);
    }
    __syncthreads();
  }
#pragma unroll
  for (int v = 0; v < N; ++v) {
    before[v] = op.combine(totals[warp * width + place.column + v], before[v]);
  }
#pragma unroll
  for (int v = 0; v < N; ++v) {
    before[v] = op.narrow(op.carry(carries[place.column + v], op.widen(before[v])));
  }
  const ColumnPlace result = column_place<Op, N>(args, recomputed(blockIdx.x) - t * chains);
  tile.store(op, args, result.offsets.out, before);
}

}  // namespace gpuopt::scan
