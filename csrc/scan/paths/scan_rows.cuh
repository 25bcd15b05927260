// The kernels of paths kRows and kSplitRows: a block scans a tile of one row. Warps hold
// neighbouring chunks, and lanes hold vectors 32 apart, so that loads and stores are coalesced:
//
//   row     | v0 v1 ... v31 | v32 v33 ... v63 | ...         v: a vector of 16 bytes
//   lane      0  1  ...  31   0   1   ...  31
//             warp 0, unit 0   warp 0, unit 1
#pragma once

#include "common/cluster.cuh"
#include "common/recomputed.cuh"
#include "scan/device/scan_look_back.cuh"
#include "scan/device/scan_row_units.cuh"
#include "scan/device/scan_stage.cuh"

namespace gpuopt::scan {

// Scans the totals of a unit's lanes. `carry` is the result of the warp's units before, and that of
// this one afterwards. Returns the result of what the warp has before the lane's unit.
template <int N, typename Op>
__device__ __forceinline__ typename Op::Value scan_units(const Op& op, typename Op::Value total,
                                                         typename Op::Value& carry) {
  total = op.combine(carry, scan_lanes<N>(op, total, kWarp * N));
  auto before = shuffle_up(total, 1);
  if (threadIdx.x % kWarp == 0) before = carry;
  carry = shuffle_from(total, kWarp - 1);
  return before;
}

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

// Blocks of an SM, at least. A switch over types needs more registers, and so do wide values.
template <typename Op, typename In, int N, bool kShifted, bool kSkewed>
constexpr int kRowsBlocks = [] {
  constexpr size_t kBytes = sizeof(typename Op::Value);
  if (std::is_same_v<In, AnyType>) return kBytes > 8 ? 1 : 2;
  if (kBytes > 8 || (kShifted && kBytes * N > 32) || (kSkewed && kBytes == 8)) return 2;
  return kBytes == 8 || N == 8 || kSkewed ? 3 : 4;
}();

// A block scans a row, tile by tile. The tiles are in registers.
template <typename Op, typename In, typename Mid, int N, bool kShifted, bool kSkewed>
__global__ void __launch_bounds__(kThreads, kRowsBlocks<Op, In, N, kShifted, kSkewed>)
    rows_kernel(const Op op, const __grid_constant__ Args args) {
  using V = typename Op::Value;
  using Carry = typename Op::Carry;
  using M = Memory<Op, In, Mid, N, kShifted>;
  constexpr int U = kUnits<Op, In, Mid, N>;
  __shared__ V totals[2][kMaxWarps];
  launch_next();
  grid_dependency_wait();
  const Offsets row = row_offsets<Op>(args.outer, blockIdx.x);
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int lead = lead_of<Mid, N, kShifted>(args, row);
  Skew skew;
  if constexpr (kSkewed) {
    const RowUnits<Op, N, true> units{args, row, lead, 0};
    skew = skew_of<Op, In, N>(args, row, units.in_memory(0));
  }
  Carry carry = op.widen(op.identity());
  for (uint32_t t = 0; t < args.tiles.divisor; ++t) {
    const RowUnits<Op, N, kShifted> place{args, row, lead, t};
    typename M::Raw raw[U];
    if constexpr (kSkewed) {
      load_skewed<Op, M, N>(args, place, skew, raw);
    } else {
      Offsets offsets[U];
      Part parts[U];
#pragma unroll
      for (int u = 0; u < U; ++u) {
        offsets[u] = place.offsets(u);
        parts[u] = place.part(u);
      }
      load_parts<M, N, kShifted>(args, offsets, parts, raw);
    }
    const auto unit = [&](int u) {
      return RowUnit<Op, In, Mid, N, kShifted>{raw[u], place.head(u), row.initial};
    };
    V before[U];
    V total = op.identity();
#pragma unroll
    for (int u = 0; u < U; ++u) {
      M::into_order(args, raw[u]);
      before[u] = scan_units<N>(op, unit(u).total(op, args), total);
    }
    // Two arrays alternate, so one barrier is enough.
    V* shared = totals[t % 2];
    if (lane == 0) shared[warp] = total;
    __syncthreads();
    Carry all;
    const Carry before_warp = combine_warps(op, shared, all);
    const V prefix = op.narrow(op.carry(carry, before_warp));
    const RowUnits<Op, N, kShifted> result{args, row, lead, kShifted ? recomputed(int64_t{t}) : t};
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const V own_prefix = op.combine(prefix, before[u]);
      unit(u).store(op, args, result.offsets(u).out, result.part(u), own_prefix);
    }
    carry = op.carry(carry, all);
  }
}

// The total of a warp's chunk. get(u) returns the total of a unit of N values.
template <int N, typename Op, typename Get>
__device__ __forceinline__ typename Op::Value chunk_total(const Op& op, const Args& args,
                                                          Get&& get) {
  auto carry = op.identity();
  if constexpr (Op::kCommutes) {
#pragma unroll 4
    for (uint32_t u = 0; u < args.units; ++u) carry = op.combine(carry, get(u));
#pragma unroll
    for (int mask = 1; mask < kWarp; mask *= 2) carry = op.combine(carry, shuffle_xor(carry, mask));
  } else {
    constexpr int kAtOnce = N * Op::kInputs > 8 ? 1 : 2;  // more would spill registers
#pragma unroll kAtOnce
    for (uint32_t u = 0; u < args.units; ++u) scan_units<1>(op, get(u), carry);
  }
  return carry;
}

// Computes the result of all tiles before tile `end` from the input. All threads call this; the
// first warp gets the result.
template <typename Op, typename In, typename Mid, int N, bool kShifted>
__device__ Before<Op> recount_rows(const Op& op, const Args& args, const Offsets& row, uint32_t end,
                                   typename Op::Value* totals) {
  using M = Memory<Op, In, Mid, N, kShifted>;
  const int lead = lead_of<Mid, N, kShifted>(args, row);
  Recount<Op> recount(op);
#pragma unroll 1
  for (uint32_t t = 0; t < end; ++t) {
    const RowUnits<Op, N, kShifted> place{args, row, lead, t};
    const auto total = chunk_total<N>(op, args, [&](uint32_t u) {
      const Offsets offsets[1] = {place.offsets(u)};
      const Part parts[1] = {place.part(u)};
      typename M::Raw raw[1];
      load_parts<M, N, kShifted>(args, offsets, parts, raw);
      M::into_order(args, raw[0]);
      return RowUnit<Op, In, Mid, N, kShifted>{raw[0], place.head(u), row.initial}.total(op, args);
    });
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

// Gets the result of all tiles before a tile of a row whose tiles are a cluster, and has the bits
// of look-back. All threads call this.
template <typename Op>
__device__ __forceinline__ typename Op::Carry before_in_cluster(const Op& op, uint32_t tile,
                                                                uint32_t tiles,
                                                                const typename Op::Carry& own) {
  static_assert(kClusterTiles <= kMaxCluster);
  __shared__ typename Op::Carry totals[kClusterTiles];
  const uint32_t lane = threadIdx.x % kWarp, index = lane % kRun;
  wait_for_cluster();  // all blocks have started
  if (threadIdx.x > tile && threadIdx.x < tiles) store_to_block(totals + tile, threadIdx.x, own);
  arrive_in_cluster();
  wait_for_cluster();
  const auto identity = op.widen(op.identity());
  const Before<Op> before{
      identity, identity,
      shuffle_from(combine_half(op, index < tile ? totals[index] : identity), 0)};
  return before.all(op);
}

// Gets the same by look-back, or from the input if its patience ends. All threads call this.
// `totals` has room for one value per warp.
template <typename Op, typename In, typename Mid, int N, bool kShifted>
__device__ __forceinline__ typename Op::Carry look_back_rows(const Op& op, const Args& args,
                                                             const Offsets& row, uint32_t row_index,
                                                             uint32_t tile,
                                                             const typename Op::Carry& own,
                                                             typename Op::Value* totals) {
  using Carry = typename Op::Carry;
  __shared__ Carry result[1];
  __shared__ bool found[1];
  Record* records = static_cast<Record*>(args.records) + row_index * args.slots * kRecords<Carry>;
  const Chain<Op> chain{records, args.slots, args.tiles.divisor, args.patience};
  if (threadIdx.x < kWarp) {
    if (threadIdx.x == 0) chain.publish_tile(tile, own);
    const bool done = chain.template look_back<1>(
        op, tile, 0, [&](int) { return own; },
        [&](int, const Before<Op>& before) { result[0] = before.all(op); });
    if (threadIdx.x == 0) found[0] = done;
  }
  __syncthreads();
  if (!found[0]) {
    const Before<Op> before = recount_rows<Op, In, Mid, N, kShifted>(op, args, row, tile, totals);
    if (threadIdx.x == 0) {
      chain.publish_ends(op, tile, before, own);
      result[0] = before.all(op);
    }
    __syncthreads();
  }
  return result[0];
}

// Every tile of every row has a block. Look-back connects them, or a cluster if there are no
// records. The tiles are in shared memory.
template <typename Op, typename In, typename Mid, int N, bool kShifted>
__global__ void __launch_bounds__(kThreads, (sizeof(typename Op::Value) > 8   ? 2
                                             : sizeof(typename Op::Carry) > 8 ? 3
                                                                              : 4) -
                                                (kShifted && sizeof(typename Op::Value) <= 8))
    split_rows_kernel(const Op op, const __grid_constant__ Args args) {
  using V = typename Op::Value;
  using Carry = typename Op::Carry;
  using M = Memory<Op, In, Mid, N, kShifted>;
  using S = Stage<Op, In, Mid, N>;
  __shared__ V totals[kMaxWarps];
  const bool in_cluster = args.records == nullptr;
  if (in_cluster) arrive_in_cluster();
  launch_next();
  grid_dependency_wait();
  uint32_t row_index = blockIdx.x;
  const uint32_t t = args.tiles.divmod(row_index);
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const Offsets row = row_offsets<Op>(args.outer, row_index);
  const RowUnits<Op, N, kShifted> place{args, row, lead_of<Mid, N, kShifted>(args, row), t};

  // Load.
  const S stage(0, args.units);
  for (uint32_t first = 0; first < args.units; first += S::kBatch) {
    Offsets offsets[S::kBatch];
    int valid[S::kBatch];
#pragma unroll
    for (int i = 0; i < S::kBatch; ++i) {
      offsets[i] = place.offsets(first + i);
      valid[i] = place.part(first + i).template is_whole<N>() ? N : 0;
    }
    stage.load(args, first, offsets, valid);
  }
  if constexpr (kShifted) {
    for (uint32_t u = 0; u < args.units; ++u) {
      const Part part = place.part(u);
      if (part.template is_whole<N>() || part.end == 0) continue;
      typename M::Raw raw{};
      M::load_one_by_one(args, place.offsets(u), part, raw);
      stage.put(u, raw);
    }
  }
  wait_for_copies();
  const auto unit = [&](uint32_t u) {
    RowUnit<Op, In, Mid, N, kShifted> unit{stage.get(args, u), place.head(u), row.initial};
    M::into_order(args, unit.raw);
    return unit;
  };

  // Reduce.
  const V total = chunk_total<N>(op, args, [&](uint32_t u) { return unit(u).total(op, args); });
  if (lane == 0) totals[warp] = total;
  __syncthreads();
  Carry all;
  const Carry before_warp = combine_warps(op, totals, all);

  // Find the result of all tiles before.
  const Carry before_tile = in_cluster ? before_in_cluster(op, t, args.tiles.divisor, all)
                                       : look_back_rows<Op, In, Mid, N, kShifted>(
                                             op, args, row, row_index, t, all, totals);

  // Scan and store.
  const V prefix = op.narrow(op.carry(before_tile, before_warp));
  V carry = op.identity();
#pragma unroll 4
  for (uint32_t u = 0; u < args.units; ++u) {
    const auto own = unit(u);
    const V before = op.combine(prefix, scan_units<N>(op, own.total(op, args), carry));
    const int own_lead = kShifted ? recomputed(place.lead) : 0;
    const RowUnits<Op, N, kShifted> result{args, row, own_lead, t};
    own.store(op, args, result.offsets(u).out, result.part(u), before);
  }
}

}  // namespace gpuopt::scan
