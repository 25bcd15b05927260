// Weight gradients along contiguous rows of stride 1, in chunks. A warp copies a chunk of a
// gradient row, and the input under it, while it multiplies the previous chunk.
#pragma once

#include "common/async.cuh"
#include "conv1d/device/launch.cuh"
#include "conv1d/weight_gradient/chunk_lanes.cuh"
#include "conv1d/weight_gradient/chunk_mma.cuh"
#include "conv1d/weight_gradient/chunks.h"

namespace gpuopt::conv1d {

// A chunk of a gradient row, and the input under it at the block's first tap.
template <typename T>
struct WeightChunk {
  const T *grads, *from;
  int32_t begin;  // first position of the gradient, aligned to a vector
  int32_t ahead;  // values of the input's first vector before the position under `begin`
};

// Sums holds a warp's sums over its chunks:
//   kTile               positions per tile
//   kMasks              whether missing positions are skipped
//   Scratch             shared memory of one warp
//   add(input, grads, ahead, position, size, taps, dilation)
//                       adds a tile, which begins at `position` of a row of `size` values
//   iteration(scratch, ahead, changes, taps, dilation)
//                       ends a chunk; `changes`: the next chunk has another `ahead` or is missing
//   finish(scratch)     leaves the sum of tap i in scratch.sum(i)
template <typename T, typename Sums>
__global__ void __launch_bounds__(32 * kWeightWarps, kChunkSums / kWeightWarps)
    weight_chunks_kernel(const __grid_constant__ WeightChunkArgs args) {
  using C = compute_t<T>;
  constexpr int N = kVecSize<T>, kTileVecs = Sums::kTile / N;
  extern __shared__ uint4 shared[];
  __shared__ WarpCopies<2>::Barriers barriers[kWeightWarps];
  launch_dependents();
  uint32_t out_channel = blockIdx.x;
  const uint32_t split = args.splits.divmod(out_channel);
  const uint32_t first_tap = args.tap_parts.divmod(out_channel) * args.tap_count;
  const uint32_t in_channel = args.in_parts.divmod(out_channel);
  const uint32_t group = out_channel / args.out_channels;
  const uint32_t taps = min(args.taps - first_tap, args.tap_count);
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const uint32_t grad_vecs = args.chunk_tiles * kTileVecs;
  const uint32_t stage_vecs = grad_vecs + args.input_vecs;
  uint4* const stages = shared + warp * 2 * stage_vecs;
  auto* const scratch =
      reinterpret_cast<typename Sums::Scratch*>(shared + blockDim.x / 32 * 2 * stage_vecs);
  WarpCopies<2> copies(barriers[warp]);
  grid_dependency_wait();

  const T* const from = static_cast<const T*>(args.from) +
                        (int64_t{group} * args.in_channels + in_channel) * args.from_channel;
  const T* const grad = static_cast<const T*>(args.grad) + out_channel * args.grad_channel;
  const auto dilation = static_cast<uint32_t>(args.dilation);
  const auto grad_size = static_cast<int32_t>(args.grad_size);
  const int32_t offset =
      static_cast<int32_t>(first_tap * dilation) - static_cast<int32_t>(args.padding);
  const auto chunk_of = [&](uint32_t index) {
    uint32_t image = index;
    const uint32_t part = args.row_chunks.divmod(image);
    WeightChunk<T> chunk;
    chunk.grads = grad + image * args.grad_batch;
    chunk.from = from + image * args.from_batch;
    chunk.begin = static_cast<int32_t>(part * grad_vecs * N) - offset_in_vec(chunk.grads);
    chunk.ahead = offset_in_vec(chunk.from + chunk.begin + offset);
    return chunk;
  };
  const auto copy_row = [&](uint32_t stage, const Rows<T>& rows, uint4* to, const T* row,
                            int32_t begin, int32_t size, uint32_t vecs) {
    const auto whole = rows.whole_vecs(begin, size, static_cast<int32_t>(vecs));
    copies.copy(to + whole.low, reinterpret_cast<const uint4*>(row + begin) + whole.low,
                whole.high - whole.low, stage);
    rows.fill_edges(whole, row, begin, size, static_cast<int32_t>(vecs), static_cast<int32_t>(lane),
                    32, [&](int32_t q, const uint4& vec) { to[q] = vec; });
  };
  const auto copy = [&](const WeightChunk<T>& chunk, uint32_t stage) {
    uint4* const to = stages + stage * stage_vecs;
    copy_row(stage, {args.grad_first_vec, args.grad_last_vec}, to, chunk.grads, chunk.begin,
             grad_size, grad_vecs);
    copy_row(stage, {args.from_first_vec, args.from_last_vec}, to + grad_vecs, chunk.from,
             chunk.begin + offset - chunk.ahead, static_cast<int32_t>(args.from_size),
             args.input_vecs);
  };

  // Multiply.
  Sums sums;
  uint32_t index = split * warps + warp;
  WeightChunk<T> next = chunk_of(min(index, args.chunks - 1));
  if (index < args.chunks) copy(next, 0);
#pragma unroll 1
  for (uint32_t iteration = 0; index < args.chunks; ++iteration) {
    const WeightChunk<T> chunk = next;
    const uint32_t stage = iteration % 2;
    index += args.splits.divisor * warps;
    const bool last = index >= args.chunks;
    if (!last) {
      next = chunk_of(index);
      copy(next, stage ^ 1);
    }
    copies.wait(stage, iteration / 2 % 2);
    __syncwarp();
    const uint4* const vecs = stages + stage * stage_vecs;
#pragma unroll 1
    for (uint32_t tile = 0; tile < args.chunk_tiles; ++tile) {
      sums.add(vecs + grad_vecs + tile * kTileVecs, vecs + tile * kTileVecs, chunk.ahead,
               chunk.begin + static_cast<int32_t>(tile) * Sums::kTile, grad_size, taps, dilation);
    }
    sums.iteration(scratch[warp], chunk.ahead, last || next.ahead != chunk.ahead, taps, dilation);
    copies.release();
  }
  sums.finish(scratch[warp]);
  __syncthreads();

  // Reduce over the warps and store.
  for (uint32_t tap = threadIdx.x; tap < taps; tap += blockDim.x) {
    C sum = scratch[0].sum(tap);
    for (uint32_t other = 1; other < warps; ++other) sum += scratch[other].sum(tap);
    if (!Sums::kMasks && sum != sum) {
      // An infinite input may have met a missing gradient (0). Sum again, position by position.
      sum = 0;
      for (uint32_t group_of_warps = split * warps; group_of_warps < args.chunks;
           group_of_warps += args.splits.divisor * warps) {
        for (uint32_t i = group_of_warps; i < min(group_of_warps + warps, args.chunks); ++i) {
          const WeightChunk<T> chunk = chunk_of(i);
          const int32_t end = min(chunk.begin + static_cast<int32_t>(grad_vecs) * N, grad_size);
          for (int32_t position = max(chunk.begin, 0); position < end; ++position) {
            const int64_t under = int64_t{position} + offset + tap * dilation;
            const bool valid = static_cast<uint64_t>(under) < static_cast<uint64_t>(args.from_size);
            sum = multiply_add(to_compute(chunk.grads[position]),
                               valid ? to_compute(chunk.from[under]) : C(0), sum);
          }
        }
      }
    }
    emit_weight<T>(
        args, split,
        (int64_t{out_channel} * args.in_channels + in_channel) * args.taps + first_tap + tap, sum);
  }
}

template <Half T>
auto kernel_of(const WeightChunksPlan& plan) {
  return plan.products == 2   ? weight_chunks_kernel<T, MatrixSums<T, 2>>
         : plan.products == 4 ? weight_chunks_kernel<T, MatrixSums<T, 4>>
                              : weight_chunks_kernel<T, MatrixSums<T, 8>>;
}
template <Single T>
auto kernel_of(const WeightChunksPlan& plan) {
  return plan.products == 4    ? weight_chunks_kernel<T, LaneSums<T, 4>>
         : plan.products == 8  ? weight_chunks_kernel<T, LaneSums<T, 8>>
         : plan.products == 16 ? weight_chunks_kernel<T, LaneSums<T, 16>>
                               : weight_chunks_kernel<T, LaneSums<T, 32>>;
}

}  // namespace gpuopt::conv1d
