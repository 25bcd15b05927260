// The kernel of path kTile, for pieces of memory that hold all values of their outputs.
#pragma once

#include "common/async.cuh"
#include "reduce/device/reduce_kernel.cuh"

namespace gpuopt::reduce {

extern __shared__ uint4 shared[];

// Reduces kOutputs outputs of a tile, args.z apart from `output` on. `pieces` is in shared memory.
// All threads of a warp take part, also those whose outputs are not below `count`.
template <int kOutputs, typename Op, typename In>
__device__ __forceinline__ void reduce_in_tile(const Op& op, const Args& args, const In* pieces,
                                               uint32_t first, uint32_t output, uint32_t count) {
  using V = typename Op::Value;
  const uint32_t lanes = args.y.divisor, lane = threadIdx.x & (lanes - 1);
  const auto stride = static_cast<uint32_t>(args.inner_stride);
  const In* from[kOutputs];
  V values[kOutputs];
#pragma unroll
  for (int u = 0; u < kOutputs; ++u) {
    uint32_t piece = min(output + u * args.z, count - 1);
    const uint32_t inside = args.piece_outputs.divmod(piece);
    const int inner_dims = args.kept.count - 1;
    const uint32_t offset =
        inner_dims == 1 ? inside * static_cast<uint32_t>(args.kept.in_strides[0])
                        : static_cast<uint32_t>(in_offset(args.kept, 0, inner_dims, inside));
    from[u] = pieces + (piece * args.pitch + offset + lane * stride);
    values[u] = op.identity();
  }
  const auto row_size = static_cast<uint32_t>(args.row_size);
  for (uint32_t outer = 0; outer < args.outer_units; ++outer) {
    auto at = outer == 0 ? 0 : static_cast<uint32_t>(in_offset(args.reduced, 1, outer));
    for (uint32_t i = lane; i < row_size; i += lanes, at += lanes * stride) {
#pragma unroll
      for (int u = 0; u < kOutputs; ++u) {
        values[u] = op.combine(values[u], convert<V>(from[u][at]));
      }
    }
  }
  if (lanes > 1) {
#pragma unroll
    for (int u = 0; u < kOutputs; ++u) values[u] = combine_lanes(op, values[u], 1, lanes);
    if (lane > 0) return;
  }
  if (args.workspace == nullptr && args.linear_out) {
    with_out_type<V>(args.out_dtype, [&](auto type) {
      using T = decltype(type);
#pragma unroll
      for (int u = 0; u < kOutputs; ++u) {
        const uint32_t own = output + u * args.z;
        if (own < count) static_cast<T*>(args.out)[first + own] = convert<T>(op.finish(values[u]));
      }
    });
    return;
  }
#pragma unroll 1
  for (int u = 0; u < kOutputs; ++u) {
    V value = values[0];
#pragma unroll
    for (int other = 1; other < kOutputs; ++other) value = u == other ? values[other] : value;
    const uint32_t own = output + u * args.z;
    if (own < count) emit(op, args, first + own, 0, value);
  }
}

// Path kTile: a block copies neighbouring pieces of memory to shared memory as one. There, y
// threads reduce the values of each output.
template <typename Op, typename In>
__global__ void __launch_bounds__(kThreads, kBlocks)
    tile_kernel(const Op op, const __grid_constant__ Args args) {
  using V = typename Op::Value;
  constexpr int kValues = kVecSize<In>;
  launch_dependents();
  grid_dependency_wait();
  auto* s = kept_in_register(reinterpret_cast<In*>(shared));
  const uint32_t most = args.tile_pieces * args.piece_outputs.divisor;
  const uint32_t first = blockIdx.x * most;
  const uint32_t here = args.outputs - first < most ? args.outputs - first : most;
  const uint32_t pieces = args.piece_outputs.div(here);
  // Copies begin at the aligned vector that holds the first value.
  const In* in =
      static_cast<const In*>(args.in) + int64_t{blockIdx.x} * args.tile_pieces * args.pitch;
  const auto begin = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(in) % kAccessBytes) /
                     static_cast<uint32_t>(sizeof(In));
  const uint32_t end = begin + (pieces - 1) * args.pitch + args.span;
  const uint32_t whole = end / kValues * kValues;
  in -= begin;
  for (uint32_t i = threadIdx.x * kValues; i < whole; i += kThreads * kValues) {
    copy_async<In, kValues>(s + i, in + i);
  }
  for (uint32_t i = (whole > begin ? whole : begin) + threadIdx.x; i < end; i += kThreads) {
    s[i] = in[i];
  }
  wait_for_copies();
  __syncthreads();

  // Reduce the outputs: several of a thread together, so that they share the instructions of the
  // loop, or the last ones one by one.
  const uint32_t own = threadIdx.x >> __popc(args.y.divisor - 1);
  for (uint32_t group = 0; group < here;) {
    if (here - group > 2 * args.z) {
      reduce_in_tile<kTileOutputs>(op, args, s + begin, first, group + own, here);
      group += kTileOutputs * args.z;
    } else {
      reduce_in_tile<1>(op, args, s + begin, first, group + own, here);
      group += args.z;
    }
  }
}

}  // namespace gpuopt::reduce
