// Stride 1 along short rows: a block copies inputs to shared memory, and threads slide over them.
#pragma once

#include "conv1d/device/launch.cuh"
#include "conv1d/device/slide.cuh"
#include "conv1d/forward/rows.h"

namespace gpuopt::conv1d {

// Loads of taps in flight per thread.
constexpr int kTapsAtOnce = 4;

// A thread computes a vector of outputs.
template <typename T, Taps kTaps>
__global__ void __launch_bounds__(kThreads, 4) rows_kernel(const __grid_constant__ RowsArgs args) {
  using C = compute_t<T>;
  constexpr int N = kVecSize<T>, P = N;
  extern __shared__ uint4 shared[];
  launch_dependents();
  const Segment segment(blockIdx.x, blockDim.x, args.row_lanes);
  uint32_t image = segment.row;
  const uint32_t channel = args.parts.divmod(image);
  const uint32_t group = args.groups.divmod(image);
  const bool works = segment.row < args.rows;

  T* const to = static_cast<T*>(args.to) + image * args.to_batch +
                (int64_t{group} * args.out_channels + channel) * args.to_channel;
  const int32_t misaligned = offset_in_vec(to);
  const int32_t begin = static_cast<int32_t>(segment.lane) * P - misaligned;
  // The input position of the segment's first tap.
  const int32_t first = static_cast<int32_t>(segment.first) * P - misaligned - args.padding;
  const T* const from = static_cast<const T*>(args.from) + image * args.from_batch +
                        int64_t{group} * args.in_channels * args.from_channel;
  const uint32_t row_taps = args.in_channels * args.taps_pitch;  // per output channel
  C* const taps = reinterpret_cast<C*>(shared) + segment.block_row * row_taps;
  const uint32_t lane_vecs = threadIdx.x * (P / N) + segment.block_row * args.halo_vecs;
  uint4* const vecs = shared + args.block_rows * row_taps / (kVecBytes / sizeof(C)) + lane_vecs;
  const uint32_t tile_vecs = blockDim.x * (P / N) + args.block_rows * args.halo_vecs;
  grid_dependency_wait();

  if (works) {
    // Load inputs.
    const Rows<T> rows{args.first_vec, args.last_vec};
    for (uint32_t c = 0; c < args.in_channels; ++c) {
      const T* const input = from + c * args.from_channel;
      rows.copy_vecs(vecs + c * tile_vecs - segment.index() * (P / N), input,
                     first - offset_in_vec(input + first), args.from_size,
                     static_cast<int32_t>(segment.lanes * (P / N) + args.halo_vecs),
                     segment.index(), static_cast<int32_t>(segment.lanes));
    }
    // Load taps, several at once: a single thread may load all taps of a short row.
    const T* const weight =
        static_cast<const T*>(args.weight) + group * args.weight_group + channel * args.weight_out;
    const uint32_t count = args.in_taps;
#pragma unroll 1
    for (uint32_t i = segment.index(); i < count; i += kTapsAtOnce * segment.lanes) {
      C values[kTapsAtOnce];
      uint32_t positions[kTapsAtOnce];
#pragma unroll
      for (int b = 0; b < kTapsAtOnce; ++b) {
        uint32_t c = i + b * segment.lanes;
        if (c >= count) break;
        const uint32_t k = args.taps_div.divmod(c);
        values[b] = to_compute(weight[c * args.weight_in + int64_t{args.weight_tap} * k]);
        positions[b] = c * args.taps_pitch + k;
      }
#pragma unroll
      for (int b = 0; b < kTapsAtOnce; ++b) {
        if (i + b * segment.lanes < count) taps[positions[b]] = values[b];
      }
    }
  }
  wait_for_copies();
  __syncthreads();
  if (!works || begin >= args.to_size) return;

  // Multiply.
  C sums[P] = {};
  for (uint32_t c = 0; c < args.in_channels; ++c) {
    const auto ahead = static_cast<uint32_t>(
        reinterpret_cast<uintptr_t>(from + c * args.from_channel + first) % kVecBytes);
    const uint4* const own = vecs + c * tile_vecs;
    if constexpr (kTaps == Taps::kDilated) {
      visit_taps<T>(sums, own, ahead, args.dilation * sizeof(T), taps + c * args.taps_pitch,
                    args.taps);
    } else {
      slide<kTaps == Taps::kOneStep, T>(sums, own, ahead, taps + c * args.taps_pitch, args.taps);
    }
  }

  // Store.
  if (args.bias != nullptr) {
    const int64_t index = int64_t{group} * args.out_channels + channel;
    const C bias = to_compute(static_cast<const T*>(args.bias)[index * args.bias_stride]);
#pragma unroll
    for (int i = 0; i < P; ++i) sums[i] += bias;
  }
  activate<T>(sums, args.activation);
  store_values<T, P>(to, begin, args.to_size, sums);
}

template <UpToSingle T>
auto kernel_of(const RowsPlan& plan) {
  return plan.taps == Taps::kDilated   ? rows_kernel<T, Taps::kDilated>
         : plan.taps == Taps::kSliding ? rows_kernel<T, Taps::kSliding>
                                       : rows_kernel<T, Taps::kOneStep>;
}

}  // namespace gpuopt::conv1d
