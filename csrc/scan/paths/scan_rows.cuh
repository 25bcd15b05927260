// The kernels of paths kRows and kSplitRows: a block scans a tile of one row. Warps hold
// neighbouring chunks, and lanes hold vectors 32 apart, so that loads and stores are coalesced:
//
//   row     | v0 v1 ... v31 | v32 v33 ... v63 | ...         v: a vector of 16 bytes
//   lane      0  1  ...  31   0   1   ...  31
//             warp 0, unit 0   warp 0, unit 1
//
// If kShifted, a row may begin and end inside of a vector. The values of this vector that belong to
// the row are moved one by one. Units are aligned in the result. In path kRows, the rows of an
// input may be skewed, that is, begin elsewhere in a vector. A unit is then cut out of two vectors:
//
//   result         | .  .  .  a0 | a1 a2 a3 a4 | a5 a6 ...
//   skewed input   | .  .  a0 a1 | a2 a3 a4 a5 | a6 ...
#pragma once

#include "common/cluster.cuh"
#include "common/recomputed.cuh"
#include "scan/device/scan_look_back.cuh"
#include "scan/device/scan_stage.cuh"

namespace gpuopt::scan {

// Where the units of a thread lie in a tile of a row. A thread has args.units of them.
template <typename Op, int N, bool kShifted>
struct RowUnits {
  const Args& args;
  const Offsets& row;
  int lead;  // values of the first vector that are not of the row: 0 unless kShifted
  int64_t tile;

  // The position in its row of the first value of a unit, in the order of the scan.
  __device__ __forceinline__ int64_t position(uint32_t u) const {
    const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    const int64_t first =
        (tile * blockDim.x + warp * kWarp) * (args.units * N) + (u * kWarp + lane) * N;
    return kShifted ? first - lead : first;
  }
  // The position of its first value in the order of memory.
  __device__ __forceinline__ int64_t in_memory(uint32_t u) const {
    const int64_t first = position(u);
    return args.reverse ? args.length - N - first : first;
  }
  __device__ __forceinline__ Part part(uint32_t u) const {
    if (u >= args.units) return {};
    if (!kShifted) return {0, position(u) < args.length ? N : 0};
    const int64_t first = in_memory(u), left = args.length - first;
    return {static_cast<int>(first < 0 ? -first : 0),
            static_cast<int>(max(int64_t{0}, min(int64_t{N}, left)))};
  }
  __device__ __forceinline__ Offsets offsets(uint32_t u) const {
    return row.at<Op>(args, in_memory(u));
  }
  // Which value of a unit is the first of the row, in the order of the scan, or -1.
  __device__ __forceinline__ int head(uint32_t u) const {
    return u == 0 && tile == 0 && threadIdx.x == 0 ? lead : -1;
  }
};

// RowUnits::lead of a row.
template <typename Mid, int N, bool kShifted>
__device__ __forceinline__ int lead_of(const Args& args, const Offsets& row) {
  if (!kShifted) return 0;
  const int64_t begin = reinterpret_cast<intptr_t>(args.out) / sizeof(Mid) + row.out;
  return static_cast<int>((args.reverse ? -(begin + args.length) : begin) & (N - 1));
}

// By how many values the units of each input lie behind aligned vectors.
struct Skew {
  int in = 0, second = 0;

  __device__ __forceinline__ bool any() const { return (in | second) != 0; }
};

// The skew of a row. `first`: where a unit begins in it, in the order of memory.
template <typename Op, typename In, int N>
__device__ __forceinline__ Skew skew_of(const Args& args, const Offsets& row, int64_t first) {
  const auto behind = [&](const void* data, int64_t offset) {
    const auto address = reinterpret_cast<uintptr_t>(static_cast<const In*>(data) + offset);
    return static_cast<int>(address / sizeof(In) % N);
  };
  Skew skew{behind(args.in, row.in + first), 0};
  if constexpr (Op::kInputs == 2) {
    if (!args.second_is_one) skew.second = behind(args.second, row.second + first);
  }
  return skew;
}

// The N values from value `skip` of two neighbouring vectors.
template <typename T, int N>
__device__ __forceinline__ Vec<T, N> cut_out(const Vec<T, N>& low, const Vec<T, N>& high,
                                             int skip) {
  uint4 words[2] = {};
  auto* bytes = reinterpret_cast<unsigned char*>(words);
  memcpy(bytes, &low, sizeof(low));
  memcpy(bytes + sizeof(low), &high, sizeof(high));
  const auto found = shift_vecs<unsigned char>(words[0], words[1], skip * sizeof(T));
  Vec<T, N> values;
  memcpy(&values, &found, sizeof(values));
  return values;
}

// A unit of a row whose values have the order of the scan.
template <typename Op, typename In, typename Mid, int N, bool kShifted>
struct RowUnit {
  using V = typename Op::Value;
  using M = Memory<Op, In, Mid, N, kShifted>;

  typename M::Raw raw;
  int head;         // RowUnits::head. The values before it are not of the row
  int64_t initial;  // offset of the row's initial value

  __device__ __forceinline__ typename Op::Input input(const Op& op, const Args& args, int v) const {
    const auto own = M::input(op, raw, v);
    return v == 0 || kShifted ? M::started(op, args, own, v == head, initial) : own;
  }
  __device__ __forceinline__ V value(const Op& op, const typename Op::Input& input, int v) const {
    if (!kShifted) return op.value(input, v == 0 && head == 0);
    return v < head ? op.identity() : op.value(input, v == head);
  }
  __device__ __forceinline__ V total(const Op& op, const Args& args) const {
    V total = value(op, input(op, args, 0), 0);
#pragma unroll
    for (int v = 1; v < N; ++v) total = op.combine(total, value(op, input(op, args, v), v));
    return total;
  }

  // Stores the results. `before` is the result of everything before the unit.
  __device__ __forceinline__ void store(const Op& op, const Args& args, int64_t offset,
                                        const Part& part, V before) const {
    typename Op::Stored results[N];
    V local = op.identity(), previous = before;
#pragma unroll
    for (int v = 0; v < N; ++v) {
      const auto in = input(op, args, v);
      const V own = value(op, in, v);
      local = v == 0 || Op::kInTurn ? own : op.combine(local, own);
      const V after = op.combine(Op::kInTurn ? previous : before, local);
      results[v] = op.result(previous, after, in, args.exclusive);
      previous = after;
    }
    M::store(args, offset, part, results);
  }
};

// Loads the parts of units that are of a row.
template <typename M, int N, bool kShifted, int U>
__device__ __forceinline__ void load_parts(const Args& args, const Offsets (&offsets)[U],
                                           const Part (&parts)[U], typename M::Raw (&units)[U]) {
  int valid[U];
#pragma unroll
  for (int u = 0; u < U; ++u) valid[u] = parts[u].template is_whole<N>() ? N : 0;
  M::load(args, offsets, valid, units);
  if constexpr (kShifted) {
#pragma unroll
    for (int u = 0; u < U; ++u) {
      if (valid[u] == 0) M::load_one_by_one(args, offsets[u], parts[u], units[u]);
    }
  }
}

// Loads the units of a row that may be skewed. Those whose vectors do not lie in the row are loaded
// one by one.
template <typename Op, typename M, int N, int U>
__device__ __forceinline__ void load_skewed(const Args& args, const RowUnits<Op, N, true>& place,
                                            const Skew& skew, typename M::Raw (&units)[U]) {
  Offsets offsets[U];
  int valid[U];
#pragma unroll
  for (int u = 0; u < U; ++u) {
    const int64_t first = place.in_memory(u);
    const bool is_whole = skew.any() ? first >= N && first + 2 * N <= args.length
                                     : place.part(u).template is_whole<N>();
    valid[u] = is_whole ? N : 0;
    offsets[u] = place.offsets(u);
    offsets[u].in -= skew.in;
    offsets[u].second -= skew.second;
  }
  M::load(args, offsets, valid, units);
  if (skew.any()) {
#pragma unroll
    for (int u = 0; u < U; ++u) {
      offsets[u].in += skew.in > 0 ? N : 0;
      offsets[u].second += skew.second > 0 ? N : 0;
    }
    typename M::Raw next[U];  // other lanes have loaded these vectors
    M::load(args, offsets, valid, next);
#pragma unroll
    for (int u = 0; u < U; ++u) {
      if constexpr (Op::kInputs == 2) {
        units[u].first = cut_out(units[u].first, next[u].first, skew.in);
        units[u].second = cut_out(units[u].second, next[u].second, skew.second);
      } else {
        units[u] = cut_out(units[u], next[u], skew.in);
      }
    }
  }
#pragma unroll
  for (int u = 0; u < U; ++u) {
    if (valid[u] == 0) M::load_one_by_one(args, place.offsets(u), place.part(u), units[u]);
  }
}

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
