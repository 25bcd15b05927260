// The kernel of path kPacked: every warp scans whole rows, which fit into its chunk of units. The
// rows of a chunk are scanned at once, as one segmented scan (Blelloch, "Prefix Sums and Their
// Applications", 1990): a lane takes nothing from lanes before the head of its row.
#pragma once

#include "scan/device/scan_kernel.cuh"

namespace gpuopt::scan {

// A unit of a chunk.
struct PackedUnit {
  Offsets offsets;
  int valid;          // how many of its values are in the tensor
  Part own;           // its values that are in the chunk
  uint32_t position;  // of its first value in its row, in the order of the scan
  uint32_t heads;     // bit v: value v is the first of its row, in the order of the scan
};

// The unit that begins `first` values behind the chunk's first vector, in the order of the scan.
template <typename Op, int N, Packing kPacking>
__device__ __forceinline__ PackedUnit packed_unit(const Args& args, int64_t first_row,
                                                  uint32_t first) {
  PackedUnit unit{};
  const uint32_t length = args.row_length.divisor, values = args.chunk_rows * length;
  const int64_t begin = first_row * length;
  constexpr bool kWhole = kPacking == Packing::kWhole, kShifted = kPacking == Packing::kShifted;
  uint32_t lead = 0;  // values of the first vector before the chunk
  if constexpr (kShifted) lead = (args.reverse ? -(begin + values) : begin) & (N - 1);
  const uint32_t skipped = first < lead ? lead : 0;
  const uint32_t index = first + skipped - lead;  // in the chunk, of the first value in it
  uint32_t row = index;
  unit.position = args.row_length.divmod(row);
  if constexpr (kWhole) {
    unit.heads = unit.position == 0;
  } else {
    uint32_t head = skipped + (unit.position == 0 ? 0 : length - unit.position);
    for (; head < N; head += length) unit.heads |= 1u << head;
  }
  if (index >= values) return unit;
  if (args.dense) {  // the values of a chunk lie behind each other
    const int64_t in_chunk = int64_t{first} - lead;
    const int64_t value = begin + (args.reverse ? values - N - in_chunk : in_chunk);
    unit.offsets.in = unit.offsets.out = value;
    if constexpr (Op::kInputs == 2) {
      unit.offsets.second = args.second_is_one ? 0 : value;
      // Of the row before the unit's first head, so that scan_unit adds a stride at each head.
      const int64_t before = int64_t{row} - (skipped > 0);
      unit.offsets.initial = (first_row + (args.reverse ? args.chunk_rows - 1 - before : before)) *
                             args.outer.initial_strides[0];
    }
    if constexpr (kWhole) {
      unit.valid = unit.own.end = value < args.total ? N : 0;
    } else {
      unit.valid = static_cast<int>(max(int64_t{0}, min(int64_t{N}, args.total - value)));
      unit.own.end = unit.valid;
    }
    if constexpr (kShifted) {
      const int end = static_cast<int>(min(int64_t{N}, values - in_chunk));
      unit.own.begin = args.reverse ? N - end : static_cast<int>(skipped);
      unit.own.end = min(unit.valid, args.reverse ? N - static_cast<int>(skipped) : end);
    }
    return unit;
  }
  if (args.reverse) row = args.chunk_rows - 1 - row;
  if (first_row + row >= args.rows) return unit;
  const Offsets offsets = row_offsets<Op>(args.outer, static_cast<uint32_t>(first_row) + row);
  const int64_t own = args.reverse ? length - N - unit.position : unit.position;
  unit.offsets = offsets.at<Op>(args, own);
  unit.valid = unit.own.end = N;
  return unit;
}

// Calls use(v, local, is_first, input) for each value of a unit. `local` is the result of the
// values of its row in this unit, and of `before` if kAfter. `is_first` says whether the value is
// the first of its row. If kWhole, all values belong to one row.
template <typename M, int N, bool kWhole, bool kAfter, bool kInitial, typename Op, typename Use>
__device__ __forceinline__ void scan_unit(const Op& op, const Args& args,
                                          const typename M::Raw& raw, const PackedUnit& unit,
                                          const typename Op::Value& before, Use&& use) {
  typename Op::Value local = before;
  int64_t initial = unit.offsets.initial;  // of the value's row
#pragma unroll
  for (int v = 0; v < N; ++v) {
    const bool is_first = (v == 0 || !kWhole) && (unit.heads >> v & 1) != 0;
    auto input = M::input(op, raw, v);
    if constexpr (kInitial) {
      const int at = args.reverse ? N - 1 - v : v;
      const bool exists = at >= unit.own.begin && at < unit.own.end;
      if (v > 0 && is_first) {  // the next row
        initial += args.reverse ? -args.outer.initial_strides[0] : args.outer.initial_strides[0];
      }
      if (v == 0 || !kWhole) input = M::started(op, args, input, is_first && exists, initial);
    }
    const auto value = op.value(input, is_first);
    local = (v == 0 && !kAfter) || is_first ? value : op.combine(local, value);
    use(v, local, is_first, input);
  }
}

// Calls scan_unit. Initial values take many instructions, so there is a version without.
template <typename M, int N, bool kWhole, bool kAfter, typename Op, typename Use>
__device__ __forceinline__ void scan_any_unit(const Op& op, const Args& args,
                                              const typename M::Raw& raw, const PackedUnit& unit,
                                              const typename Op::Value& before, Use&& use) {
  if constexpr (Op::kInputs == 2) {
    if (args.initial != nullptr) {
      return scan_unit<M, N, kWhole, kAfter, true>(op, args, raw, unit, before, use);
    }
  }
  scan_unit<M, N, kWhole, kAfter, false>(op, args, raw, unit, before, use);
}

// Blocks of an SM, at least, so that registers don't limit the loads in flight.
template <typename Op, typename In, int N, bool kWhole>
constexpr int kPackedBlocks = sizeof(typename Op::Value) > 8               ? 3
                              : std::is_same_v<In, AnyType>                ? 4
                              : !kWhole && N == 8                          ? 5
                              : sizeof(typename Op::Value) == 8 || !kWhole ? 6
                                                                           : 8;

template <typename Op, typename In, typename Mid, int N, Packing kPacking>
__global__ void __launch_bounds__(128, kPackedBlocks<Op, In, N, kPacking == Packing::kWhole>)
    packed_kernel(const Op op, const __grid_constant__ Args args) {
  constexpr bool kWhole = kPacking == Packing::kWhole;
  using V = typename Op::Value;
  using M = Memory<Op, In, Mid, N, !kWhole>;
  constexpr int U = kUnits<Op, In, Mid, N>;
  launch_next();
  grid_dependency_wait();
  const uint32_t lane = threadIdx.x % kWarp, length = args.row_length.divisor;
  const int64_t chunk = int64_t{blockIdx.x} * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  const int64_t first_row = chunk * args.chunk_rows;
  if (first_row >= args.rows) return;  // the whole warp

  // Load.
  PackedUnit units[U];
  Offsets offsets[U];
  int valid[U];
  typename M::Raw raw[U];
#pragma unroll
  for (int u = 0; u < U; ++u) {
    units[u] = packed_unit<Op, N, kPacking>(args, first_row, (u * kWarp + lane) * N);
    offsets[u] = units[u].offsets;
    valid[u] = units[u].valid;
  }
  M::load(args, offsets, valid, raw);
#pragma unroll
  for (int u = 0; u < U; ++u) M::into_order(args, raw[u]);

  // Scan: within units, over the lanes, then over the units of a thread.
  V before[U];  // the result of the values of the row before the unit
  V carry = op.identity();
#pragma unroll
  for (int u = 0; u < U; ++u) {
    V total;
    const auto keep = [&](int, V local, bool, const auto&) { total = local; };
    scan_any_unit<M, N, kWhole, false>(op, args, raw[u], units[u], op.identity(), keep);
    // Values between the head of the row and the last value of the unit.
    const uint32_t reach =
        units[u].heads == 0 ? units[u].position + N - 1 : N - 1 - (31 - __clz(units[u].heads));
    total = scan_lanes<N>(op, total, reach, length);
    if (reach >= (lane + 1) * N) total = op.combine(carry, total);
    before[u] = shuffle_up(total, 1);
    if (lane == 0) before[u] = carry;
    if (kWhole && units[u].position == 0) before[u] = op.identity();
    carry = shuffle_from(total, kWarp - 1);
  }

  // Store.
#pragma unroll
  for (int u = 0; u < U; ++u) {
    typename Op::Stored results[N];
    V previous = before[u];
    const auto finish = [&](int v, V local, bool is_first, const auto& input) {
      V own = local;
      const bool began_before = (units[u].heads & ((2u << v) - 1)) == 0;
      if (!Op::kInTurn && (kWhole || began_before)) own = op.combine(before[u], local);
      const V earlier = !kWhole && is_first ? op.identity() : previous;
      results[v] = op.result(earlier, own, input, args.exclusive);
      previous = own;
    };
    scan_any_unit<M, N, kWhole, Op::kInTurn>(op, args, raw[u], units[u], before[u], finish);
    M::store(args, units[u].offsets.out, units[u].own, results);
  }
}

}  // namespace gpuopt::scan
