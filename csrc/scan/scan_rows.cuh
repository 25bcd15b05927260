// The kernels of paths kRows and kSplitRows: a block scans a tile of one row. Warps hold
// neighbouring chunks, and lanes hold vectors 32 apart, so that loads and stores are coalesced:
//
//   row     | v0 v1 ... v31 | v32 v33 ... v63 | ...         v: a vector of 16 bytes
//   lane      0  1  ...  31   0   1   ...  31
//             warp 0, unit 0   warp 0, unit 1
#pragma once

#include "scan/scan_look_back.cuh"

namespace gpuopt::scan {

// The position in its row of the first value of a thread's unit, in the order of the scan.
template <int U, int N>
__device__ __forceinline__ int64_t unit_position(int64_t tile, int u) {
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  return (tile * blockDim.x + warp * kWarp) * (U * N) + (u * kWarp + lane) * N;
}

// A thread's part of a tile.
template <typename Op, typename In, typename Mid, int N>
struct RowTile {
  using V = typename Op::Value;
  using Carry = typename Op::Carry;
  using M = Memory<Op, In, Mid, N>;
  static constexpr int U = kUnits<Op, In, Mid, N>;

  typename M::Raw raw[U];
  V before[U];      // the result of the values of the warp's chunk before the unit
  int units;        // of the thread that exist
  bool is_first;    // whether the thread holds the first value of the row
  int64_t initial;  // offset of the row's initial value

  // Starts the loads of a tile.
  __device__ __forceinline__ void load(const Args& args, const Offsets& row, int64_t tile) {
    Offsets offsets[U];
    int valid[U];
    units = 0;
    is_first = tile == 0 && threadIdx.x == 0;
    initial = row.initial;
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const int64_t position = unit_position<U, N>(tile, u);
      const int64_t own = args.reverse ? args.length - N - position : position;
      if (position < args.length) units = u + 1;
      valid[u] = position < args.length ? N : 0;
      offsets[u] = row.at<Op>(args, own);
    }
    M::load(args, offsets, valid, raw);
  }

  __device__ __forceinline__ int valid(int u) const { return u < units ? N : 0; }

  __device__ __forceinline__ typename Op::Input input(const Op& op, const Args& args, int u,
                                                      int v) const {
    const auto own = M::input(op, args, raw[u], valid(u), v);
    return u == 0 && v == 0 ? M::started(op, args, own, is_first, initial) : own;
  }

  __device__ __forceinline__ V value(const Op& op, const Args& args, int u, int v) const {
    return op.value(input(op, args, u, v), u == 0 && v == 0 && is_first);
  }

  // Scans the warp's chunk and returns its total.
  __device__ __forceinline__ V scan(const Op& op, const Args& args) {
    const uint32_t lane = threadIdx.x % kWarp;
    V carry = op.identity();
#pragma unroll
    for (int u = 0; u < U; ++u) {
      V total = value(op, args, u, 0);
#pragma unroll
      for (int v = 1; v < N; ++v) total = op.combine(total, value(op, args, u, v));
      total = scan_lanes<N>(op, total, kWarp * N);
      if (u > 0) total = op.combine(carry, total);
      before[u] = shuffle_up(total, 1);
      if (lane == 0) before[u] = carry;
      carry = shuffle_from(total, kWarp - 1);
    }
    return carry;
  }

  // Stores the results. `prefix` is the result of everything before the warp's chunk.
  __device__ __forceinline__ void store(const Op& op, const Args& args, const Offsets& row,
                                        int64_t tile, V prefix) const {
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const int64_t position = unit_position<U, N>(tile, u);
      const int64_t own = args.reverse ? args.length - N - position : position;
      typename Op::Stored results[N];
      V local = op.identity();
      V previous = op.combine(prefix, before[u]);
#pragma unroll
      for (int v = 0; v < N; ++v) {
        const auto in = input(op, args, u, v);
        const V own = op.value(in, u == 0 && v == 0 && is_first);
        local = v == 0 ? own : op.combine(local, own);
        const V after = op.combine(prefix, op.combine(before[u], local));
        results[v] = op.result(previous, after, in, args.exclusive);
        previous = after;
      }
      M::store(args, row.out + own * args.out_stride, valid(u), results);
    }
  }
};

// Combines the totals of the warps. Returns the result of the warps before this one; `all` becomes
// that of all warps.
template <typename Op>
__device__ __forceinline__ typename Op::Carry combine_warps(const Op& op,
                                                            const typename Op::Value* totals,
                                                            typename Op::Carry& all) {
  const uint32_t warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  auto before = op.widen(op.identity());
  all = op.widen(totals[0]);
  for (uint32_t w = 1; w < warps; ++w) {
    if (w == warp) before = all;
    all = op.carry(all, op.widen(totals[w]));
  }
  return before;
}

// A block scans a row, tile by tile.
template <typename Op, typename In, typename Mid, int N>
__global__ void __launch_bounds__(kThreads)
    rows_kernel(const Op op, const __grid_constant__ Args args) {
  using V = typename Op::Value;
  using Carry = typename Op::Carry;
  __shared__ V totals[2][kMaxWarps];
  launch_dependents();
  grid_dependency_wait();
  const Offsets row = row_offsets<Op>(args.outer, blockIdx.x);
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  Carry carry = op.widen(op.identity());
  for (uint32_t t = 0; t < args.tiles.divisor; ++t) {
    RowTile<Op, In, Mid, N> tile;
    tile.load(args, row, t);
    const V total = tile.scan(op, args);
    // Two arrays alternate, so one barrier is enough.
    V* own = totals[t % 2];
    if (lane == 0) own[warp] = total;
    __syncthreads();
    Carry all;
    const Carry before = combine_warps(op, own, all);
    tile.store(op, args, row, t, op.narrow(op.carry(carry, before)));
    carry = op.carry(carry, all);
  }
}

// The result of RowTile::scan, with few registers: one unit at a time.
template <typename Op, typename In, typename Mid, int N>
__device__ typename Op::Value chunk_total(const Op& op, const Args& args, const Offsets& row,
                                          int64_t tile) {
  using M = Memory<Op, In, Mid, N>;
  constexpr int U = kUnits<Op, In, Mid, N>;
  auto carry = op.identity();
#pragma unroll 1
  for (int u = 0; u < U; ++u) {
    const int64_t position = unit_position<U, N>(tile, u);
    const int64_t own = args.reverse ? args.length - N - position : position;
    const Offsets offsets[1] = {row.at<Op>(args, own)};
    const int valid[1] = {position < args.length ? N : 0};
    typename M::Raw raw[1];
    M::load(args, offsets, valid, raw);
    const bool is_first = position == 0;
    const auto first = M::input(op, args, raw[0], valid[0], 0);
    auto total = op.value(M::started(op, args, first, is_first, row.initial), is_first);
#pragma unroll
    for (int v = 1; v < N; ++v) {
      total = op.combine(total, op.value(M::input(op, args, raw[0], valid[0], v), false));
    }
    total = scan_lanes<N>(op, total, kWarp * N);
    carry = shuffle_from(u > 0 ? op.combine(carry, total) : total, kWarp - 1);
  }
  return carry;
}

// Computes the result of all tiles before tile `end` from the input. All threads call this; the
// first warp gets the result.
template <typename Op, typename In, typename Mid, int N>
__device__ Before<Op> recount_rows(const Op& op, const Args& args, const Offsets& row, uint32_t end,
                                   typename Op::Value* totals) {
  Recount<Op> recount(op);
#pragma unroll 1
  for (uint32_t t = 0; t < end; ++t) {
    const auto total = chunk_total<Op, In, Mid, N>(op, args, row, t);
    __syncthreads();
    if (threadIdx.x % kWarp == 0) totals[threadIdx.x / kWarp] = total;
    __syncthreads();
    typename Op::Carry all;
    combine_warps(op, totals, all);
    recount.add(op, all);
  }
  __syncthreads();
  return recount.result(op);
}

// Every tile of every row has a block, and look-back connects them. A switch over types needs more
// registers, and so do wide values: fewer blocks are required of an SM.
template <typename Op, typename In, typename Mid, int N>
__global__ void __launch_bounds__(kThreads, std::is_same_v<In, AnyType> ||
                                                    (N == 1 && sizeof(typename Op::Value) >= 8) ||
                                                    sizeof(typename Op::Value) > 8
                                                ? 2
                                                : 3)
    split_rows_kernel(const Op op, const __grid_constant__ Args args) {
  using V = typename Op::Value;
  using Carry = typename Op::Carry;
  __shared__ V totals[kMaxWarps];
  __shared__ Carry carries[1];
  __shared__ bool found[1];
  launch_dependents();
  grid_dependency_wait();
  uint32_t row = blockIdx.x;
  const uint32_t t = args.tiles.divmod(row);
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const Offsets offsets = row_offsets<Op>(args.outer, row);
  RowTile<Op, In, Mid, N> tile;
  tile.load(args, offsets, t);
  const V total = tile.scan(op, args);
  if (lane == 0) totals[warp] = total;
  __syncthreads();
  Carry all;
  const Carry before_warp = combine_warps(op, totals, all);
  Record* records = static_cast<Record*>(args.records) + row * args.slots * kRecords<Carry>;
  const Chain<Op> chain{records, kRecords<Carry>, args.tiles.divisor, args.patience};
  if (warp == 0) {
    Before<Op> before;
    const bool done = chain.look_back(op, t, all, before);
    if (lane == 0) {
      found[0] = done;
      carries[0] = before.all(op);
    }
  }
  __syncthreads();
  if (!found[0]) {
    const Before<Op> before = recount_rows<Op, In, Mid, N>(op, args, offsets, t, totals);
    if (threadIdx.x == 0) {
      chain.publish_ends(op, t, before, all);
      carries[0] = before.all(op);
    }
    // The tile is loaded again, so that no register holds it in the meantime.
    RowTile<Op, In, Mid, N> again;
    again.load(args, offsets, t);
    again.scan(op, args);
    tile = again;
    __syncthreads();
  }
  tile.store(op, args, offsets, t, op.narrow(op.carry(carries[0], before_warp)));
}

}  // namespace gpuopt::scan
