// Kernels for reductions along the innermost dimension, and the second launch of split reductions.
// README.md draws which thread holds which values of a row.
#pragma once

#include "reduce/device/reduce_kernel.cuh"

namespace gpuopt::reduce {

extern __shared__ uint4 shared[];

// The number of values before the first aligned vector of a row.
template <typename In>
__device__ __forceinline__ uint32_t head_of(const In* row) {
  return static_cast<uint32_t>(-reinterpret_cast<uintptr_t>(row) % kAccessBytes / sizeof(In));
}

// Combines the values of each row that its aligned vectors leave out: at most kValues - 1 at the
// beginning (the head) and at the end (the tail).
template <typename Op, typename In, int kValues>
__device__ __forceinline__ typename Op::Value combine_edges(const Op& op, const Args& args,
                                                            int64_t base, uint32_t lane,
                                                            uint32_t lanes) {
  using V = typename Op::Value;
  V value = op.identity();
  const uint32_t edges = args.outer_units * 2 * kValues;
  for (uint32_t e = lane; e < edges; e += lanes) {
    const uint32_t outer = e / (2 * kValues), position = e % (2 * kValues);
    const In* row = static_cast<const In*>(args.in) + base + in_offset(args.reduced, 1, outer);
    const uint32_t head = head_of(row);
    const auto tail = static_cast<uint32_t>((args.row_size - head) % kValues);
    const bool in_head = position < kValues;
    if (in_head ? position >= head : position - kValues >= tail) continue;
    const int64_t i = in_head ? position : args.row_size - tail + (position - kValues);
    if ((i & (args.apart - 1)) == 0) value = op.combine(value, convert<V>(row[i]));
  }
  return value;
}

// Path kLine: a block reads one aligned row, or a split of one. This kernel is separate from
// rows_kernel because small reductions are mostly prologue: 2^10 values in f32 take 1.24 us here
// and 1.55 us in rows_kernel (CUDA graph, H200).
template <typename Op, typename In>
__global__ void __launch_bounds__(kThreads, kBlocksOf<In, typename Op::Value, kVecSize<In>>)
    line_kernel(const Op op, const __grid_constant__ LineArgs args) {
  using V = typename Op::Value;
  constexpr int kValues = kVecSize<In>;
  constexpr int kGroup = kThreads * kVecUnroll;
  launch_dependents();
  grid_dependency_wait();
  uint32_t row = blockIdx.x;
  const uint32_t split = args.splits.divmod(row);
  const auto* in =
      reinterpret_cast<const uint4*>(static_cast<const In*>(args.in) + row * args.row_stride) +
      threadIdx.x;
  V value = op.identity();
  const auto combined = [&](const uint4& words) {
    const auto vec = vec_of<In>(words);
    V values[kValues];
#pragma unroll
    for (int v = 0; v < kValues; ++v) values[v] = convert<V>(vec.values[v]);
    return combine_all<kValues>(op, values);
  };
  // Whole groups of 4 vectors per thread, then the last group with a bound on each vector.
  uint4 words[kVecUnroll];
  V totals[kVecUnroll];
  int64_t begin = int64_t{split} * kGroup;
  const int64_t jump = int64_t{args.splits.divisor} * kGroup;
  for (; begin + kGroup <= args.vecs; begin += jump) {
#pragma unroll
    for (int u = 0; u < kVecUnroll; ++u) {
      words[u] = load_16_bytes(in + begin + u * kThreads, true, args.read_once);
    }
#pragma unroll
    for (int u = 0; u < kVecUnroll; ++u) totals[u] = combined(words[u]);
    value = op.combine(value, combine_all<kVecUnroll>(op, totals));
  }
  if (begin < args.vecs) {
    const auto left = static_cast<int>(args.vecs - begin) - static_cast<int>(threadIdx.x);
#pragma unroll
    for (int u = 0; u < kVecUnroll; ++u) {
      words[u] = load_16_bytes(in + begin + u * kThreads, u * kThreads < left, args.read_once);
    }
#pragma unroll
    for (int u = 0; u < kVecUnroll; ++u) {
      totals[u] = u * kThreads < left ? combined(words[u]) : op.identity();
    }
    value = op.combine(value, combine_all<kVecUnroll>(op, totals));
  }

  // Combine the threads of a warp, then the warps.
  constexpr int kWarps = kThreads / kWarp;
  auto* s = reinterpret_cast<V*>(shared);
  value = combine_lanes(op, value, 1, kWarp);
  if (threadIdx.x % kWarp == 0) s[threadIdx.x / kWarp] = value;
  __syncthreads();
  if (threadIdx.x >= kWarp) return;
  value = combine_lanes(op, s[threadIdx.x % kWarps], 1, kWarps);
  if (threadIdx.x != 0) return;
  if (args.to_workspace) {
    static_cast<V*>(args.to)[int64_t{split} * args.outputs + row] = value;
  } else {
    const V result = op.finish(value);
    with_out_type<V>(args.out_dtype, [&](auto type) {
      using T = decltype(type);
      static_cast<T*>(args.to)[row] = convert<T>(result);
    });
  }
}

// Path kRows. A block has z outputs, and y threads (a power of two) run along the units of each.
// With kRagged, rows begin and end at any address: their units are the aligned vectors, and the
// values at both ends are read one by one. If values lie apart, a power of two, the gaps are read
// and left out. With kOneRow, the units of an output lie in one row.
template <typename Op, typename In, typename Mid, int kValues, bool kRagged, bool kOneRow>
__global__ void __launch_bounds__(kThreads, kBlocksOf<In, typename Op::Value, kValues>)
    rows_kernel(const Op op, const __grid_constant__ Args args) {
  using V = typename Op::Value;
  constexpr int kUnroll = kValues > 1 ? kVecUnroll : kUnrollOf<In>;
  launch_dependents();
  grid_dependency_wait();
  uint32_t tile = blockIdx.x;
  const uint32_t split = args.splits.divmod(tile);
  const uint32_t lanes = args.y.divisor;
  const uint32_t lane = threadIdx.x & (lanes - 1);
  const uint32_t z = threadIdx.x / lanes;
  const uint32_t output = tile * args.z + z;
  const bool active = output < args.outputs;

  V value = op.identity();
  if (active) {
    const int64_t base = in_offset(args.kept, 0, output);
    const uint32_t between = kRagged ? args.apart - 1 : 0;
    // The value at index 0 of a vector lies so far behind one that counts.
    const uint32_t phase = kRagged ? head_of(static_cast<const In*>(args.in) + base) : 0;
    const auto take = [&](const V* values) {
      V own[kValues];
#pragma unroll
      for (int v = 0; v < kValues; ++v) {
        own[v] = ((phase + v) & between) == 0 ? values[v] : op.identity();
      }
      value = op.combine(value, combine_all<kValues>(op, own));
    };
    if constexpr (kOneRow) {
      int64_t first = base, units = args.units;
      if constexpr (kRagged) {
        const uint32_t head = head_of(static_cast<const In*>(args.in) + base);
        first += head;
        units = (args.row_size - head) / kValues;
      }
      walk_row<In, Mid, kValues, kUnroll, Read::kAligned>(op, args, first, units, lane, lanes,
                                                          split, take);
    } else {
      walk_rows<In, Mid, kValues, kUnroll, Read::kAligned>(
          op, args, base, lane, lanes, split,
          [&](int64_t row, uint32_t inner, bool& valid) {
            if constexpr (kRagged) {
              // A row with a long head has one vector less than the plan counts.
              const uint32_t head = head_of(static_cast<const In*>(args.in) + row);
              row += head;
              valid = valid && (int64_t{inner} + 1) * kValues + head <= args.row_size;
            }
            return row + inner * args.inner_stride;
          },
          take);
    }
    if constexpr (kRagged) {
      value = op.combine(value, combine_edges<Op, In, kValues>(op, args, base, split * lanes + lane,
                                                               args.splits.divisor * lanes));
    }
  }

  // Combine the threads of an output: within warps by shuffles, then in shared memory.
  value = combine_lanes(op, value, 1, lanes);
  if (lanes > kWarp) {
    auto* s = reinterpret_cast<V*>(shared);
    const uint32_t warps = lanes / kWarp;
    if (threadIdx.x % kWarp == 0) s[threadIdx.x / kWarp] = value;
    __syncthreads();
    if (lane >= kWarp) return;
    value = lane < warps ? s[z * warps + lane] : op.identity();
    value = combine_lanes(op, value, 1, warps);
  }
  if (active && lane == 0) emit(op, args, output, split, value);
}

// Path kShortRows: rows of at most kWarp vectors. A group of y threads reads kRows rows, one vector
// per thread and row. The rows of a group lie z apart, so that a block reads z neighbouring rows at
// a time.
template <typename Op, typename In>
__global__ void __launch_bounds__(kThreads, kBlocks)
    short_rows_kernel(const Op op, const __grid_constant__ Args args) {
  using V = typename Op::Value;
  constexpr int kValues = kVecSize<In>;
  constexpr int kRows = kVecUnroll;
  launch_dependents();
  grid_dependency_wait();
  const uint32_t lanes = args.y.divisor;
  const uint32_t lane = threadIdx.x & (lanes - 1);
  const uint32_t first = blockIdx.x * (args.z * kRows) + threadIdx.x / lanes;
  const bool has_vec = lane < static_cast<uint32_t>(args.units);

  uint4 words[kRows];
#pragma unroll
  for (int k = 0; k < kRows; ++k) {
    const uint32_t row = first + k * args.z;
    const int64_t offset = in_offset(args.kept, 0, row) + lane * kValues;
    words[k] = load_16_bytes(static_cast<const In*>(args.in) + offset,
                             has_vec && row < args.outputs, /*once=*/false);
  }
  V results[kRows];
#pragma unroll
  for (int k = 0; k < kRows; ++k) {
    const auto vec = vec_of<In>(words[k]);
    V values[kValues];
#pragma unroll
    for (int v = 0; v < kValues; ++v) values[v] = convert<V>(vec.values[v]);
    results[k] = has_vec ? combine_all<kValues>(op, values) : op.identity();
  }
#pragma unroll
  for (int k = 0; k < kRows; ++k) results[k] = combine_lanes(op, results[k], 1, lanes);
  // Every thread of a group has all kRows results, and each thread writes some of them.
  for (uint32_t k = lane; k < kRows; k += lanes) {
    V value = results[0];
#pragma unroll
    for (int other = 1; other < kRows; ++other) {
      value = k == static_cast<uint32_t>(other) ? results[other] : value;
    }
    const uint32_t row = first + k * args.z;
    if (row < args.outputs) emit(op, args, row, 0, value);
  }
}

// Path kRowsInVecs: rows of kRow values without gaps between them. A vector holds several rows.
template <typename Op, typename In, int kRow>
__global__ void __launch_bounds__(kThreads, kBlocksOf<In, typename Op::Value, kVecSize<In>>)
    rows_in_vecs_kernel(const Op op, const __grid_constant__ Args args) {
  using V = typename Op::Value;
  constexpr int kValues = kVecSize<In>, kRows = kValues / kRow;
  launch_dependents();
  grid_dependency_wait();
  const int64_t vecs = args.outputs / kRows;
  const int64_t first = int64_t{blockIdx.x} * (kThreads * kVecUnroll) + threadIdx.x;
  const auto* in = static_cast<const uint4*>(args.in) + first;
  uint4 words[kVecUnroll];
#pragma unroll
  for (int u = 0; u < kVecUnroll; ++u) {
    words[u] = load_16_bytes(in + u * kThreads, first + u * kThreads < vecs, /*once=*/false);
  }
#pragma unroll
  for (int u = 0; u < kVecUnroll; ++u) {
    if (first + u * kThreads >= vecs) break;
    const auto vec = vec_of<In>(words[u]);
    V values[kValues], results[kRows];
#pragma unroll
    for (int v = 0; v < kValues; ++v) values[v] = convert<V>(vec.values[v]);
#pragma unroll
    for (int row = 0; row < kRows; ++row) results[row] = combine_all<kRow>(op, values + row * kRow);
    const auto output = static_cast<uint32_t>(first + u * kThreads) * kRows;
    emit_vec<kRows>(op, args, output, 0, args.packed_out, results);
  }
  // The last rows, which don't fill a vector.
  const auto rest = static_cast<uint32_t>(vecs) * kRows + threadIdx.x;
  if (blockIdx.x == 0 && rest < args.outputs) {
    V value = op.identity();
    for (int i = 0; i < kRow; ++i) {
      value =
          op.combine(value, convert<V>(static_cast<const In*>(args.in)[int64_t{rest} * kRow + i]));
    }
    emit(op, args, rest, 0, value);
  }
}

// The second launch of a split reduction: combines the partial results in the workspace, in a fixed
// order. A block has x outputs (a power of two), and y threads run along the slots of each.
template <typename Op>
__global__ void __launch_bounds__(kFinishThreads)
    finish_kernel(const Op op, const __grid_constant__ Args args, uint32_t slots) {
  using V = typename Op::Value;
  constexpr int kUnroll = 4;
  const uint32_t width = args.x.divisor;
  const uint32_t x = threadIdx.x & (width - 1);
  const uint32_t y = threadIdx.x / width;
  const uint32_t output = blockIdx.x * width + x;
  V value = op.identity();
  launch_dependents();
  grid_dependency_wait();
  if (output < args.outputs) {
    const V* in = static_cast<const V*>(args.workspace) + output;
    for (uint32_t slot = y; slot < slots; slot += kUnroll * args.y.divisor) {
      V values[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const uint32_t own = slot + u * args.y.divisor;
        values[u] = own < slots ? in[int64_t{own} * args.outputs] : op.identity();
      }
      value = op.combine(value, combine_all<kUnroll>(op, values));
    }
  }
  auto* s = reinterpret_cast<V*>(shared);
  value = combine_lanes(op, value, width, kWarp);
  const uint32_t warps = blockDim.x / kWarp;
  if (threadIdx.x % kWarp < width) s[threadIdx.x / kWarp * width + x] = value;
  __syncthreads();
  if (threadIdx.x >= width || output >= args.outputs) return;
  for (uint32_t warp = 1; warp < warps; ++warp) value = op.combine(value, s[warp * width + x]);
  store(op, args, output, value);
}

}  // namespace gpuopt::reduce
