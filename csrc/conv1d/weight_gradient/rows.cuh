// Weight gradients of stride 1 along short rows: tiles in shared memory hold several rows.
#pragma once

#include "conv1d/device/launch.cuh"
#include "conv1d/weight_gradient/rows.h"
#include "conv1d/weight_gradient/sums.cuh"

namespace gpuopt::conv1d {

// Neighbouring positions per thread, from an aligned one on.
template <typename T>
constexpr int kWeightOutputs = 32 / sizeof(T);

// Gradients of kRowsTaps taps for a pair of channels. A block copies one tile of the gradient and
// the input while it multiplies the previous tile. Each tap has its own window of inputs.
template <typename T>
__global__ void __launch_bounds__(kThreads, 3)
    weight_rows_kernel(const __grid_constant__ WeightRowsArgs args) {
  using C = compute_t<T>;
  constexpr int N = kVecSize<T>, P = kWeightOutputs<T>;
  constexpr int kTaps = kRowsTaps;
  extern __shared__ uint4 shared[];
  launch_dependents();
  uint32_t out_channel = blockIdx.x;
  const uint32_t split = args.splits.divmod(out_channel);
  const uint32_t tap_part = args.tap_parts.divmod(out_channel);
  const uint32_t in_channel = args.in_parts.divmod(out_channel);
  const uint32_t group = out_channel / args.out_channels;
  const auto first_tap = static_cast<int32_t>(tap_part * kTaps);
  const int32_t taps = min(static_cast<int32_t>(args.taps) - first_tap, kTaps);
  grid_dependency_wait();

  const Rows<T> from_rows{args.from_first_vec, args.from_last_vec};
  const Rows<T> grad_rows{args.grad_first_vec, args.grad_last_vec};
  const T* const from = static_cast<const T*>(args.from) +
                        (int64_t{group} * args.in_channels + in_channel) * args.from_channel;
  const T* const grad = static_cast<const T*>(args.grad) + out_channel * args.grad_channel;
  const auto from_size = static_cast<int32_t>(args.from_size);
  const auto grad_size = static_cast<int32_t>(args.grad_size);
  const auto dilation = static_cast<int32_t>(args.dilation);
  const int32_t offset = first_tap * dilation - static_cast<int32_t>(args.padding);
  const uint32_t grad_vecs = kThreads * (P / N);
  const uint32_t stage_vecs = 2 * grad_vecs + args.tile_rows * args.halo_vecs;

  // The thread's segment of a tile.
  struct Part {
    const T *grads, *row;
    int32_t begin;  // the thread's aligned position in the gradient row
    int32_t first;  // position of the segment's first thread
    uint32_t vecs;  // the thread's inputs in shared memory
    int32_t index, lanes;
    bool valid;
  };
  const auto part_of = [&](uint32_t tile) {
    const Segment segment(tile, kThreads, args.row_lanes);
    Part part;
    part.valid = segment.row < args.batch;
    part.grads = grad + segment.row * args.grad_batch;
    part.row = from + segment.row * args.from_batch;
    part.index = segment.index();
    part.lanes = static_cast<int32_t>(segment.lanes);
    part.begin = static_cast<int32_t>(segment.lane) * P - offset_in_vec(part.grads);
    part.first = part.begin - part.index * P;
    part.vecs = grad_vecs + threadIdx.x * (P / N) + segment.block_row * args.halo_vecs;
    return part;
  };
  const auto ahead_of = [&](const Part& part) {
    return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(part.row + part.begin + offset) %
                                 kVecBytes);
  };
  const auto copy = [&](const Part& part, uint4* to) {
    if (part.valid) {
      const int32_t under = part.lanes * (P / N), before = part.index * (P / N);
      grad_rows.copy_vecs(to + threadIdx.x * (P / N) - before, part.grads, part.first, grad_size,
                          under, part.index, part.lanes);
      from_rows.copy_vecs(to + part.vecs - before, part.row,
                          part.first + offset - static_cast<int32_t>(ahead_of(part) / sizeof(T)),
                          from_size, under + static_cast<int32_t>(args.halo_vecs), part.index,
                          part.lanes);
    }
    end_copy_group();
  };

  // Multiply.
  C sums[kTaps] = {};
  uint32_t tile = split, stage = 0;
  Part next = part_of(tile);
  copy(next, shared);
  while (tile < args.tiles) {
    const Part part = next;
    tile += args.splits.divisor;
    if (tile < args.tiles) {
      next = part_of(tile);
      copy(next, shared + (stage ^ 1) * stage_vecs);
      wait_for_copy_groups<1>();
    } else {
      wait_for_copy_groups<0>();
    }
    __syncthreads();
    const uint4* const grads = shared + stage * stage_vecs + threadIdx.x * (P / N);
    const uint4* const vecs = shared + stage * stage_vecs + part.vecs;
    const int32_t begin = part.begin;
    if (part.valid && begin < grad_size) {
      C own[P];
#pragma unroll
      for (int i = 0; i < P / N; ++i) {
        widen<T>(own + i * N, vec_of<T>(grads[i]));
      }
      const uint32_t ahead = ahead_of(part);
      // Missing positions are skipped: 0 times an infinite value is NaN.
      const bool whole = begin >= 0 && begin <= grad_size - P;
#pragma unroll
      for (int k = 0; k < kTaps; ++k) {
        if (k < taps) {
          const uint32_t position = ahead + static_cast<uint32_t>(k * dilation) * sizeof(T);
          uint4 raw[P / N + 1];
          read_vecs(raw, vecs + position / kVecBytes);
          C window[P];
          shift_in<T, P / N>(window, raw, position % kVecBytes);
#pragma unroll
          for (int i = 0; i < P; ++i) {
            if (whole || static_cast<uint32_t>(begin + i) < static_cast<uint32_t>(grad_size)) {
              sums[k] = multiply_add(own[i], window[i], sums[k]);
            }
          }
        }
      }
    }
    __syncthreads();
    stage ^= 1;
  }
  // Reduce and store.
  sum_block<kTaps>(sums, [&](uint32_t i, C sum) {
    if (static_cast<int32_t>(i) >= taps) return;
    const int64_t index =
        (int64_t{out_channel} * args.in_channels + in_channel) * args.taps + first_tap + i;
    emit_weight<T>(args, split, index, sum);
  });
}

template <UpToSingle T>
auto kernel_of(const WeightRowsPlan&) {
  return weight_rows_kernel<T>;
}

}  // namespace gpuopt::conv1d
