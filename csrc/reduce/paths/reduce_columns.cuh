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
  const uint32_t block_columns = (args.x.divisor - args.overlap) * kValues;
  const uint32_t first = args.column_tiles.divmod(tile) * block_columns;
  uint32_t z = threadIdx.x;
  const uint32_t x = args.x.divmod(z);
  const uint32_t y = args.y.divmod(z);
  const uint32_t lanes = args.y.divisor;
  const uint32_t outer = tile * args.z + z;
  const bool folded = args.fold > 1;

  // The thread's columns: neighbours, or as far apart as the block is wide.
  constexpr bool kIsSpread = kRead == Read::kSpread;
  const uint32_t apart = kIsSpread ? args.x.divisor : 1;
  const uint32_t own = kIsSpread ? x : x * kValues;  // the first, counted from the block's first
  const uint32_t column = first + own;
  const bool is_inside = outer < args.outer_outputs;
  bool active = is_inside && column < args.columns * args.fold;
  int64_t base = 0;
  uint32_t shift = 0;  // how far before `column` the thread's vectors begin
  if (is_inside) base = in_offset(args.kept, 1, outer) + column * args.kept.in_strides[0];
  if constexpr (kRead == Read::kShifted) {
    if (is_inside) {
      const In* row = static_cast<const In*>(args.in) + base + y * args.inner_stride;
      shift = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(row) % kAccessBytes / sizeof(In));
      base -= shift;
      active = column < args.columns + shift && own < block_columns + shift;
    }
  }
  V acc[kValues];
#pragma unroll
  for (int v = 0; v < kValues; ++v) acc[v] = op.identity();
  if (active) {
    Spread<kRead, kValues> spread;
    if constexpr (kIsSpread) {
      // Columns behind the last are read as the last, and not written.
#pragma unroll
      for (uint32_t v = 0; v < kValues; ++v) {
        spread.offsets[v] = min(v * apart, args.columns - 1 - column) * args.kept.in_strides[0];
      }
    }
    const auto take = [&](const V* values) {
#pragma unroll
      for (int v = 0; v < kValues; ++v) acc[v] = op.combine(acc[v], values[v]);
    };
    if constexpr (kOneRow) {
      walk_row<In, Mid, kValues, kUnroll, kRead>(op, args, base, args.units, y, lanes, split, take,
                                                 spread);
    } else {
      walk_rows<In, Mid, kValues, kUnroll, kRead>(
          op, args, base, y, lanes, split,
          [&](int64_t row, uint32_t inner, bool&) { return row + inner * args.inner_stride; }, take,
          spread);
    }
    if constexpr (kRead == Read::kShifted) {
      // The input may begin and end inside of an aligned vector, in the first and in the last row.
      const int64_t last = args.units - 1;
      for (const int64_t unit : {int64_t{0}, last}) {
        const int64_t offset = base + unit * args.inner_stride;
        const bool whole = offset >= 0 && offset + kValues <= args.reach;
        if (split > 0 || whole || unit % lanes != y) continue;
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
  const bool meets = kRead == Read::kShifted || lanes > 1 || folded;
  if (meets) {
#pragma unroll
    for (int v = 0; v < kValues; ++v) {
      const uint32_t at = own + v * apart - shift;  // wraps before the block's first column
      if (kRead == Read::kShifted && at >= block_columns) continue;
      s[(y * args.z + z) * width + at] = acc[v];
    }
    combine_groups(op, s, lanes, args.z * width);
  }
  if (folded) {
    // A folded row holds each column `fold` times.
    for (uint32_t j = threadIdx.x; j < args.z * args.columns; j += blockDim.x) {
      const uint32_t row = j / args.columns, c = j % args.columns;
      if (tile * args.z + row >= args.outer_outputs) break;
      V value = s[row * width + c];
      for (uint32_t f = 1; f < args.fold; ++f) {
        value = op.combine(value, s[row * width + f * args.columns + c]);
      }
      emit(op, args, (tile * args.z + row) * args.columns + c, split, value);
    }
    return;
  }
  if (y > 0 || !is_inside || own >= block_columns) return;
  if (meets) {
#pragma unroll
    for (int v = 0; v < kValues; ++v) acc[v] = s[z * width + own + v * apart];
  }
  const uint32_t output = outer * args.columns + column;
  if (!kIsSpread && column + kValues <= args.columns) {
    emit_vec<kValues>(op, args, output, split, args.packed_out && column % kValues == 0, acc);
    return;
  }
#pragma unroll
  for (int v = 0; v < kValues; ++v) {
    if (column + v * apart < args.columns) emit(op, args, output + v * apart, split, acc[v]);
  }
}

}  // namespace gpuopt::reduce
