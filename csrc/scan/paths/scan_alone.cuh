// The kernel of path kAlone: each thread scans a row alone. Neighbouring threads have neighbouring
// columns, so that their accesses are coalesced, wherever the columns begin. A thread loads the
// values of a tile at once, while it adds the tile before:
//
//   thread      0  1  2  3  ...  255
//   value 0  |  a  b  c  d  ...
//   value 1  |  a  b  c  d  ...
#pragma once

#include "scan/device/scan_kernel.cuh"

namespace gpuopt::scan {

// The values of a thread in a tile.
template <typename Op, typename In, typename Mid, int kBatches>
struct AloneTile {
  using M = Memory<Op, In, Mid, 1>;
  static constexpr int kBatch = kAloneUnits;  // values that are loaded or left out together
  static constexpr int kValues = kBatches * kBatch;

  typename M::Raw raw[kBatches][kBatch];

  // Loads `left` values, or as many as fit, from `next` on.
  __device__ __forceinline__ void load(const Args& args, Offsets& next, const Offsets& step,
                                       int32_t left) {
#pragma unroll
    for (int b = 0; b < kBatches; ++b) {
      if (left <= b * kBatch) break;
      Offsets offsets[kBatch];
      int valid[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        valid[i] = b * kBatch + i < left ? 1 : 0;
        offsets[i] = next;
        next.in += step.in;
        next.second += step.second;
      }
      M::load(args, offsets, valid, raw[b]);
    }
  }
};

template <typename Op, typename In, typename Mid, int kBatches>
__global__ void __launch_bounds__(kThreads)
    alone_kernel(const Op op, const __grid_constant__ Args args) {
  using V = typename Op::Value;
  using Tile = AloneTile<Op, In, Mid, kBatches>;
  using M = typename Tile::M;
  launch_next();
  grid_dependency_wait();
  const uint32_t index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= args.rows) return;
  const int64_t sign = args.reverse ? -1 : 1;
  const Offsets row = row_offsets<Op>(args.outer, index);
  const Offsets step{sign * args.in_stride, sign * args.out_stride, sign * args.second_stride};
  Offsets at = row.at<Op>(args, args.reverse ? args.length - 1 : 0);
  int64_t out = at.out;
  auto left = static_cast<int32_t>(args.length);
  auto carry = op.widen(op.identity());
  bool starts = true;
  Tile next;
  next.load(args, at, step, left);
  while (left > 0) {
    const Tile tile = next;
    next.load(args, at, step, left - Tile::kValues);
    const V base = op.narrow(carry);
    V total = op.identity();               // of the tile
    V local = Op::kInTurn ? base : total;  // if kInTurn, the result so far
#pragma unroll
    for (int b = 0; b < kBatches; ++b) {
      if (left <= b * Tile::kBatch) break;
#pragma unroll
      for (int i = 0; i < Tile::kBatch; ++i) {
        const bool is_first = starts && b == 0 && i == 0;
        const auto in =
            M::started(op, args, M::input(op, tile.raw[b][i], 0), is_first, row.initial);
        const V own = op.value(in, is_first), above = local;
        total = op.combine(total, own);
        local = Op::kInTurn ? op.combine(above, own) : total;
        typename Op::Stored results[1];
        if constexpr (Op::kInTurn) {
          results[0] = op.result(above, local, in, args.exclusive);
        } else {
          results[0] =
              op.result(op.combine(base, above), op.combine(base, local), in, args.exclusive);
        }
        M::store_in_order(args, out, b * Tile::kBatch + i < left ? 1 : 0, results);
        out += step.out;
      }
    }
    carry = op.carry(carry, op.widen(total));
    left -= Tile::kValues;
    starts = false;
  }
}

}  // namespace gpuopt::scan
