// Tiles of columns in shared memory: each thread copies units of its own.
#pragma once

#include "scan/device/scan_column.cuh"
#include "scan/device/scan_stage.cuh"

namespace gpuopt::scan {

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
  __device__ __forceinline__ void load(const Args& args, const ColumnPlace<N>& place,
                                       int64_t tile) {
    const Offsets& columns = place.offsets;
    first = first_row(args, tile);
    initial = columns.initial;
    const int64_t left = place.active ? args.length - first : 0;
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
  __device__ __forceinline__ void scan(const Op& op, const Args& args, const ColumnPlace<N>&,
                                       V (&totals)[N], V (&before)[N]) const {
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
#pragma unroll
    for (int v = 0; v < N; ++v) scan_level(op, args, totals[v], totals[v], before[v]);
  }

  // Stores the results. base[v] is the result of everything above the thread's rows.
  __device__ __forceinline__ void store(const Op& op, const Args& args, const ColumnPlace<N>& place,
                                        const V (&base)[N]) const {
    V local[N];  // if kInTurn, the result so far
    int64_t out = start(args, place.offsets.out, args.out_stride);
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

template <typename Op, int N>
__device__ __forceinline__ ColumnPlace<N> unit_place(const Args& args, uint32_t block) {
  ColumnPlace<N> place;
  place.chain = block;
  const uint32_t x = threadIdx.x & (args.x - 1);  // x is a power of two
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

}  // namespace gpuopt::scan
