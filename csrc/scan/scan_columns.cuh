// The kernels of paths kColumns and kSplitColumns, for scans along a dimension that is not the
// innermost. Each thread holds the columns of one unit, in kColumnRows neighbouring rows. A warp
// is x units wide and 32 / x threads high, and the warps of a block lie below each other:
//
//                 x = 8 units of 4 columns
//   warp 0   | lanes  0 to  7 |   rows  0 to  7
//            | lanes  8 to 15 |   rows  8 to 15
//            | lanes 16 to 23 |   rows 16 to 23
//            | lanes 24 to 31 |   rows 24 to 31
//   warp 1   | lanes  0 to  7 |   rows 32 to 39 ...
#pragma once

#include "scan/scan_look_back.cuh"

namespace gpuopt::scan {

// Rows that a thread has in flight.
template <typename Op>
constexpr int kRowsOf = kColumnRows / Op::kInputs;

// The row of the thread's first value in a tile, in the order of the scan.
template <typename Op>
__device__ __forceinline__ int64_t first_row(const Args& args, int64_t tile) {
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const uint32_t high = kWarp / args.x, warps = blockDim.x / kWarp;
  return ((tile * warps + warp) * high + lane / args.x) * kRowsOf<Op>;
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

// A thread's part of a tile.
template <typename Op, typename In, typename Mid, int N>
struct ColumnTile {
  using V = typename Op::Value;
  using M = Memory<Op, In, Mid, N>;

  int64_t initial;  // offset of the initial value of the thread's first column
  int64_t first;    // row of the thread, in the order of the scan
  int rows;         // of the thread that exist
  typename M::Raw raw[kRowsOf<Op>];
  V before[N];  // the result of the warp's rows before the thread's

  // The offset of the thread's first row in one of the tensors, and from row to row.
  __device__ __forceinline__ int64_t start(const Args& args, int64_t offset, int64_t stride) const {
    return offset + (args.reverse ? args.length - 1 - first : first) * stride;
  }
  __device__ __forceinline__ static int64_t step(const Args& args, int64_t stride) {
    return args.reverse ? -stride : stride;
  }

  __device__ __forceinline__ int valid(int r) const { return r < rows ? N : 0; }

  // Value v of row r, or absent(). Columns keep their order when the rows are reversed.
  __device__ __forceinline__ typename Op::Input input(const Op& op, const Args& args, int r,
                                                      int v) const {
    const auto own = M::input_in_order(op, raw[r], valid(r), v);
    if constexpr (Op::kInputs == 1) {
      return own;
    } else {
      if (r > 0) return own;
      return M::started(op, args, own, first == 0 && rows > 0,
                        initial + v * args.initial_column_stride);
    }
  }
  __device__ __forceinline__ V value(const Op& op, const Args& args, int r, int v) const {
    return op.value(input(op, args, r, v), r == 0 && first == 0);
  }

  __device__ __forceinline__ void load(const Args& args, const Offsets& columns, bool active,
                                       int64_t tile) {
    first = first_row<Op>(args, tile);
    initial = columns.initial;
    const int64_t left = active ? args.length - first : 0;
    rows = static_cast<int>(max(int64_t{0}, min(int64_t{kRowsOf<Op>}, left)));
    Offsets offsets[kRowsOf<Op>];
    int exist[kRowsOf<Op>];
#pragma unroll
    for (int r = 0; r < kRowsOf<Op>; ++r) {
      exist[r] = valid(r);
      offsets[r].in = r == 0 ? start(args, columns.in, args.in_stride)
                             : offsets[r - 1].in + step(args, args.in_stride);
      if constexpr (Op::kInputs == 2) {
        offsets[r].second = r == 0 ? start(args, columns.second, args.second_stride)
                                   : offsets[r - 1].second + step(args, args.second_stride);
      }
    }
    M::load(args, offsets, exist, raw);
  }

  // Scans the warp's rows. The lanes of the last row get the totals of the columns.
  __device__ __forceinline__ void scan(const Op& op, const Args& args, V (&totals)[N]) {
    const uint32_t lane = threadIdx.x % kWarp;
#pragma unroll
    for (int v = 0; v < N; ++v) {
      totals[v] = value(op, args, 0, v);
#pragma unroll
      for (int r = 1; r < kRowsOf<Op>; ++r) {
        totals[v] = op.combine(totals[v], value(op, args, r, v));
      }
      totals[v] = scan_column(op, args, totals[v]);
      before[v] = shuffle_up(totals[v], args.x);
      if (lane < args.x) before[v] = op.identity();
    }
  }

  // Stores the results. prefix[v] is the result of everything above the warp's rows.
  __device__ __forceinline__ void store(const Op& op, const Args& args, int64_t offset,
                                        const V (&prefix)[N]) const {
    V local[N];
    int64_t out = start(args, offset, args.out_stride);
#pragma unroll
    for (int v = 0; v < N; ++v) local[v] = before[v];
#pragma unroll
    for (int r = 0; r < kRowsOf<Op>; ++r) {
      typename Op::Stored results[N];
#pragma unroll
      for (int v = 0; v < N; ++v) {
        const auto in = input(op, args, r, v);
        const V above = local[v];
        local[v] = op.combine(above, op.value(in, r == 0 && first == 0));
        results[v] = op.result(op.combine(prefix[v], above), op.combine(prefix[v], local[v]), in,
                               args.exclusive);
      }
      M::store_in_order(args, out, valid(r), results);
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

// The total of a column of the tile.
template <typename Op>
__device__ __forceinline__ typename Op::Carry column_total(const Op& op,
                                                           const typename Op::Value* totals,
                                                           uint32_t stride) {
  auto all = op.widen(totals[0]);
  for (uint32_t w = 1; w < blockDim.x / kWarp; ++w) {
    all = op.carry(all, op.widen(totals[w * stride]));
  }
  return all;
}

// The result of everything above the warp's rows in a column. `carry` is that of all tiles before;
// `all` becomes that of this tile's warps.
template <typename Op>
__device__ __forceinline__ typename Op::Value column_prefix(const Op& op,
                                                            const typename Op::Value* totals,
                                                            uint32_t stride,
                                                            typename Op::Carry carry,
                                                            typename Op::Carry& all) {
  const uint32_t warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  auto before = op.widen(op.identity());
  all = op.widen(totals[0]);
  for (uint32_t w = 1; w < warps; ++w) {
    if (w == warp) before = all;
    all = op.carry(all, op.widen(totals[w * stride]));
  }
  return op.narrow(op.carry(carry, before));
}

// A block scans its columns, tile by tile.
template <typename Op, typename In, typename Mid, int N>
__global__ void __launch_bounds__(kThreads, 2)
    columns_kernel(const Op op, const __grid_constant__ Args args) {
  using V = typename Op::Value;
  using Carry = typename Op::Carry;
  __shared__ V totals[2][kMaxWarps * kWarp * N];
  __shared__ Carry carries[2][kWarp * N];
  launch_dependents();
  grid_dependency_wait();
  const ColumnPlace place = column_place<Op, N>(args, blockIdx.x);
  const uint32_t width = args.x * N;
  for (uint32_t i = threadIdx.x; i < width; i += blockDim.x) {
    carries[0][i] = op.widen(op.identity());
  }
  for (uint32_t t = 0; t < args.tiles.divisor; ++t) {
    ColumnTile<Op, In, Mid, N> tile;
    tile.load(args, place.offsets, place.active, t);
    V own[N], prefix[N];
    tile.scan(op, args, own);
    // Two arrays alternate, so one barrier is enough.
    share_totals<N>(args, own, totals[t % 2]);
    __syncthreads();
#pragma unroll
    for (int v = 0; v < N; ++v) {
      const uint32_t column = place.column + v;
      const Carry carry = carries[t % 2][column];
      Carry all;
      prefix[v] = column_prefix(op, totals[t % 2] + column, width, carry, all);
      if (threadIdx.x < args.x) carries[(t + 1) % 2][column] = op.carry(carry, all);
    }
    tile.store(op, args, place.offsets.out, prefix);
  }
}

// Computes and shares the totals of the columns in a tile, as ColumnTile::scan does, with few
// registers: one row at a time. All threads call this.
template <typename Op, typename In, typename Mid, int N>
__device__ void share_tile(const Op& op, const Args& args, const Offsets& columns, bool active,
                           uint32_t tile, typename Op::Value* totals) {
  using V = typename Op::Value;
  using M = Memory<Op, In, Mid, N>;
  V own[N];
#pragma unroll 1
  for (int r = 0; r < kRowsOf<Op>; ++r) {
    const int64_t position = first_row<Op>(args, tile) + r;
    const int64_t row = args.reverse ? args.length - 1 - position : position;
    const Offsets offsets[1] = {columns.at<Op>(args, row)};
    const int valid[1] = {active && position < args.length ? N : 0};
    typename M::Raw raw[1];
    M::load(args, offsets, valid, raw);
#pragma unroll
    for (int v = 0; v < N; ++v) {
      auto in = M::input_in_order(op, raw[0], valid[0], v);
      if constexpr (Op::kInputs == 2) {
        in = M::started(op, args, in, position == 0 && active,
                        columns.initial + v * args.initial_column_stride);
      }
      const V value = op.value(in, position == 0);
      own[v] = r == 0 ? value : op.combine(own[v], value);
    }
  }
#pragma unroll
  for (int v = 0; v < N; ++v) own[v] = scan_column(op, args, own[v]);
  __syncthreads();
  share_totals<N>(args, own, totals);
  __syncthreads();
}

// Computes the results of all tiles before a tile from the input, for all columns of the block, and
// publishes what the tile ends. All threads call this.
template <typename Op, typename In, typename Mid, int N>
__device__ void recount_columns(const Op& op, const Args& args, const Offsets& columns, bool active,
                                const Chain<Op>& chain, uint32_t tile, typename Op::Value* totals,
                                typename Op::Carry* carries) {
  const uint32_t width = args.x * N;
  for (uint32_t first = 0; first < width; first += blockDim.x) {
    const uint32_t c = first + threadIdx.x;
    RecountAlone<Op> recount(op);
    for (uint32_t t = 0; t <= tile; ++t) {
      share_tile<Op, In, Mid, N>(op, args, columns, active, t, totals);
      if (c >= width) continue;
      const auto total = column_total(op, totals + c, width);
      if (t < tile) {
        recount.add(op, total);
      } else {
        carries[c] = recount.before.all(op);
        chain.column(c).publish_ends(op, tile, recount.before, total);
      }
    }
  }
}

// Every tile has a block, and look-back connects the tiles of the same columns.
template <typename Op, typename In, typename Mid, int N>
__global__ void __launch_bounds__(32 * column_warps(N, Op::kInputs),
                                  sizeof(typename Op::Value) > kAccessBytes ? 1 : 2)
    split_columns_kernel(const Op op, const __grid_constant__ Args args) {
  using V = typename Op::Value;
  using Carry = typename Op::Carry;
  __shared__ V totals[kMaxWarps * kWarp * N];
  __shared__ Carry carries[kWarp * N];
  __shared__ int missing[1];
  launch_dependents();
  grid_dependency_wait();
  // Neighbouring blocks have the same tile of neighbouring columns, and so neighbouring memory.
  const uint32_t chains = gridDim.x / args.tiles.divisor;
  const uint32_t t = blockIdx.x / chains;
  const ColumnPlace place = column_place<Op, N>(args, blockIdx.x - t * chains);
  const uint32_t width = args.x * N;
  Record* records =
      static_cast<Record*>(args.records) + place.chain * args.slots * width * kRecords<Carry>;
  const Chain<Op> chain{records, width * kRecords<Carry>, args.tiles.divisor, args.patience};
  ColumnTile<Op, In, Mid, N> tile;
  tile.load(args, place.offsets, place.active, t);
  V own[N], prefix[N];
  tile.scan(op, args, own);
  share_totals<N>(args, own, totals);
  if (threadIdx.x == 0) missing[0] = 0;
  __syncthreads();
  for (uint32_t c = threadIdx.x; c < width; c += blockDim.x) {
    const Carry all = column_total(op, totals + c, width);
    Before<Op> before;
    if (!chain.column(c).look_back_alone(op, t, all, before)) missing[0] = 1;
    carries[c] = before.all(op);
  }
  __syncthreads();
  if (missing[0] != 0) {
    recount_columns<Op, In, Mid, N>(op, args, place.offsets, place.active, chain, t, totals,
                                    carries);
    // The tile is loaded again, so that no register holds it in the meantime. The totals are those
    // of the last call of share_tile.
    ColumnTile<Op, In, Mid, N> again;
    again.load(args, place.offsets, place.active, t);
    again.scan(op, args, own);
    tile = again;
    __syncthreads();
  }
#pragma unroll
  for (int v = 0; v < N; ++v) {
    Carry all;
    const uint32_t column = place.column + v;
    prefix[v] = column_prefix(op, totals + column, width, carries[column], all);
  }
  tile.store(op, args, place.offsets.out, prefix);
}

}  // namespace gpuopt::scan
