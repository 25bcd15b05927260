// The kernel of path kColumns, for reductions whose innermost dimension is kept. README.md draws
// which thread holds which values.
#pragma once

#include "reduce/device/reduce_kernel.cuh"

namespace gpuopt::reduce {

extern __shared__ uint4 shared[];

// Shared memory holds `groups` arrays of `width` values. Combines them, element by element, into
// the first array. All threads of the block must call this.
template <typename Op>
__device__ __forceinline__ void combine_groups(const Op& op, typename Op::Value* s, uint32_t groups,
                                               uint32_t width) {
  for (uint32_t n = groups; n > 1;) {
    const uint32_t half = (n + 1) / 2;
    __syncthreads();
    for (uint32_t j = threadIdx.x; j < (n - half) * width; j += blockDim.x) {
      s[j] = op.combine(s[j], s[j + half * width]);
    }
    n = half;
  }
  __syncthreads();
}

// Writes the results of kValues neighbouring columns, gaps included, of a row of row_columns.
template <int kValues, typename Op>
__device__ __forceinline__ void emit_columns(const Op& op, const Args& args, uint32_t outer,
                                             uint32_t column, uint32_t row_columns, uint32_t split,
                                             const typename Op::Value* values) {
  const uint32_t first = outer * args.columns;
  if (args.apart == 1 && column + kValues <= row_columns) {
    const bool packed = args.packed_out && column % kValues == 0;
    emit_vec<kValues>(op, args, first + column, split, packed, values);
    return;
  }
  uint32_t own = (column + args.apart - 1) / args.apart;
  uint32_t next = own * args.apart - column;
#pragma unroll
  for (uint32_t v = 0; v < kValues; ++v) {
    if (v != next || column + v >= row_columns) continue;
    emit(op, args, first + own, split, values[v]);
    ++own;
    next += args.apart;
  }
}

// A block has x * y * z threads: x along the vectors of columns, y along the units, z along the
// other kept dimensions. With kOneRow, the units lie along a single dimension.
template <typename Op, typename In, typename Mid, int kValues, Read kRead, bool kOneRow>
__global__ void __launch_bounds__(kThreads, kRead == Read::kUnaligned
                                                ? kBlocks / 2
                                                : kBlocksOf<In, typename Op::Value, kValues>)
    columns_kernel(const Op op, const __grid_constant__ Args args) {
  using V = typename Op::Value;
  // An unaligned vector takes two loads, so half as many vectors are in flight.
  constexpr int kVecs = kRead == Read::kUnaligned ? kVecUnroll / 2 : kVecUnroll;
  constexpr int kUnroll = kValues > 1 ? kVecs : kUnrollOf<In>;
  launch_dependents();
  grid_dependency_wait();
  uint32_t tile = blockIdx.x;
  const uint32_t split = args.splits.divmod(tile);
  const uint32_t first_vec = args.column_tiles.divmod(tile) * (args.x.divisor - args.overlap);
  uint32_t z = threadIdx.x;
  const uint32_t x = args.x.divmod(z);
  const uint32_t y = args.y.divmod(z);
  const uint32_t lanes = args.y.divisor;
  const uint32_t outer = tile * args.z + z;
  const bool folded = args.fold > 1;

  const uint32_t vec = first_vec + x;
  bool active = vec < args.column_vecs && outer < args.outer_outputs;
  // If a row isn't whole vectors, its last vector is moved back so that it ends with the row. Both
  // threads that then own a column compute the same result.
  uint32_t column = vec * kValues;
  const uint32_t row_columns = (args.columns - 1) * args.apart + 1;  // with gaps
  if (kRead == Read::kUnaligned && !folded && column + kValues > row_columns) {
    column = row_columns - kValues;
  }
  V acc[kValues];
#pragma unroll
  for (int v = 0; v < kValues; ++v) acc[v] = op.identity();
  // Columns of a block, and how far before `column` the thread's vectors begin.
  const uint32_t block_columns = (args.x.divisor - args.overlap) * kValues;
  uint32_t shift = 0;
  int64_t base = 0;
  if (outer < args.outer_outputs) {
    base = in_offset(args.kept, 1, outer) + column * (kValues > 1 ? 1 : args.kept.in_strides[0]);
    if constexpr (kRead == Read::kShifted) {
      const In* row = static_cast<const In*>(args.in) + base + y * args.inner_stride;
      shift = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(row) % kAccessBytes / sizeof(In));
      base -= shift;
      active = column < row_columns + shift && x * kValues < block_columns + shift;
    }
  }
  if (active) {
    const auto take = [&](const V* values) {
#pragma unroll
      for (int v = 0; v < kValues; ++v) acc[v] = op.combine(acc[v], values[v]);
    };
    if constexpr (kOneRow) {
      walk_row<In, Mid, kValues, kUnroll, kRead>(op, args, base, args.units, y, lanes, split, take);
    } else {
      walk_rows<In, Mid, kValues, kUnroll, kRead>(
          op, args, base, y, lanes, split,
          [&](int64_t row, uint32_t inner, bool&) { return row + inner * args.inner_stride; },
          take);
    }
    if constexpr (kRead == Read::kShifted) {
      // The input may begin and end inside of an aligned vector, in the first and in the last row.
      const int64_t last = args.units - 1;
      for (const int64_t unit : {int64_t{0}, last}) {
        const int64_t offset = base + unit * args.inner_stride;
        const bool inside = offset >= 0 && offset + kValues <= args.reach;
        if (split > 0 || inside || unit % lanes != y) continue;
#pragma unroll
        for (int v = 0; v < kValues; ++v) {
          if (offset + v < 0 || offset + v >= args.reach) continue;
          acc[v] = op.combine(acc[v], convert<V>(static_cast<const In*>(args.in)[offset + v]));
        }
      }
    }
    if constexpr (kValues > 1) {
      if (folded) {
        // The last rows, too few to fill a folded row.
        const auto rest = static_cast<uint32_t>(args.row_size % args.fold) * args.columns;
        const int64_t whole = args.row_size / args.fold;
        for (uint32_t o = split * lanes + y; o < args.outer_units;
             o += args.splits.divisor * lanes) {
          const In* row = static_cast<const In*>(args.in) + base + in_offset(args.reduced, 1, o) +
                          whole * args.inner_stride;
#pragma unroll
          for (int v = 0; v < kValues; ++v) {
            if (column + v < rest) acc[v] = op.combine(acc[v], convert<V>(row[v]));
          }
        }
      }
    }
  }

  // Combine the partial results along y.
  auto* s = reinterpret_cast<V*>(shared);
  const uint32_t width = args.x.divisor * kValues;
  if constexpr (kRead == Read::kShifted) {
#pragma unroll
    for (int v = 0; v < kValues; ++v) {
      const uint32_t own = x * kValues + v - shift;  // wraps before the block's first column
      if (own < block_columns) s[(y * args.z + z) * width + own] = acc[v];
    }
    combine_groups(op, s, lanes, args.z * width);
    const uint32_t own = x * kValues;
    if (y > 0 || own >= block_columns || column >= row_columns || outer >= args.outer_outputs) {
      return;
    }
#pragma unroll
    for (int v = 0; v < kValues; ++v) acc[v] = s[z * width + own + v];
    emit_columns<kValues>(op, args, outer, column, row_columns, split, acc);
    return;
  }
  if (lanes > 1 || folded) {
#pragma unroll
    for (int v = 0; v < kValues; ++v) s[(y * args.z + z) * width + x * kValues + v] = acc[v];
    combine_groups(op, s, lanes, args.z * width);
  }
  if (folded) {
    // A folded row holds each column `fold` times.
    for (uint32_t j = threadIdx.x; j < args.z * args.columns; j += blockDim.x) {
      const uint32_t own = j / args.columns, c = j % args.columns;
      if (tile * args.z + own >= args.outer_outputs) break;
      V value = s[own * width + c];
      for (uint32_t f = 1; f < args.fold; ++f) {
        value = op.combine(value, s[own * width + f * args.columns + c]);
      }
      emit(op, args, (tile * args.z + own) * args.columns + c, split, value);
    }
  } else if (active && y == 0) {
    if (lanes > 1) {
#pragma unroll
      for (int v = 0; v < kValues; ++v) acc[v] = s[z * width + x * kValues + v];
    }
    emit_columns<kValues>(op, args, outer, column, row_columns, split, acc);
  }
}

}  // namespace gpuopt::reduce
