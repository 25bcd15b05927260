// Expand: a thread keeps the inputs of N outputs in registers and loops over the output channels.
//
//   registers, loaded once           taps of channel m
//   inputs of N outputs, tap 0    *  w[m][0]  +
//   inputs of N outputs, tap 1    *  w[m][1]  +  ...  =  N outputs of channel m,  m = 0, 1, 2, ...
#pragma once

#include "conv1d/device/launch.cuh"
#include "conv1d/device/rows.cuh"
#include "conv1d/forward/expand.h"

namespace gpuopt::conv1d {

// What a block computes: channels of one alignment class, for one tile of positions.
template <typename T>
struct ExpandBlock {
  uint32_t tile, group, first_channel, channels;
  T* to;  // the first channel
  const T *from, *weight;
  int32_t misaligned;  // values from an aligned address to the first output

  __device__ __forceinline__ explicit ExpandBlock(const ExpandArgs& args) {
    uint32_t image = blockIdx.x;
    const uint32_t channel_class = args.cycle.divmod(image), cycle = args.cycle.divisor;
    tile = args.tiles.divmod(image);
    const uint32_t part = args.parts.divmod(image);
    group = args.groups.divmod(image);
    first_channel = channel_class + part * args.block_channels * cycle;
    channels =
        first_channel >= args.out_channels
            ? 0
            : min(args.block_channels, (args.out_channels - first_channel + cycle - 1) / cycle);
    to = static_cast<T*>(args.to) + image * args.to_batch +
         (int64_t{group} * args.out_channels + first_channel) * args.to_channel;
    from = static_cast<const T*>(args.from) + image * args.from_batch +
           int64_t{group} * args.in_channels * args.from_channel;
    weight = static_cast<const T*>(args.weight) + group * args.weight_group +
             first_channel * args.weight_out;
    misaligned = static_cast<int32_t>(reinterpret_cast<uintptr_t>(to) / sizeof(T) % args.aligned);
  }

  // The bias of the block's channel m.
  __device__ __forceinline__ compute_t<T> bias(const ExpandArgs& args, uint32_t m) const {
    return load_bias<T>(
        args, int64_t{group} * args.out_channels + first_channel + m * args.cycle.divisor);
  }
  // Values from an aligned vector to value `first` of input channel c.
  __device__ __forceinline__ int32_t ahead_of(const ExpandArgs& args, int32_t first,
                                              uint32_t c) const {
    return offset_in_vec(from + c * args.from_channel + first);
  }
  // Starts copying the inputs from value `first` on.
  __device__ __forceinline__ void copy_inputs(const ExpandArgs& args, uint4* vecs,
                                              int32_t first) const {
    const Rows<T> rows{args.first_vec, args.last_vec};
    for (uint32_t c = 0; c < args.in_channels; ++c) {
      rows.copy_vecs(vecs + c * args.row_vecs, from + c * args.from_channel,
                     first - ahead_of(args, first, c), static_cast<int32_t>(args.from_size),
                     static_cast<int32_t>(args.row_vecs), static_cast<int32_t>(threadIdx.x),
                     kChunkThreads);
    }
  }
};

// An output has at most kProducts multiply-adds.
template <typename T, int kProducts>
__global__ void __launch_bounds__(kChunkThreads, expand_blocks(kProducts))
    expand_kernel(const __grid_constant__ ExpandArgs args) {
  using C = compute_t<T>;
  constexpr int N = kVecSize<T>, kPitch = expand_pitch(kProducts);
  extern __shared__ uint4 shared[];
  launch_dependents();
  const ExpandBlock<T> block(args);
  grid_dependency_wait();
  if (block.channels == 0) return;

  // Shared memory: each channel's taps and bias, then the inputs under the block's outputs.
  C* const taps = reinterpret_cast<C*>(shared);
  uint4* const vecs = shared + args.block_channels * kPitch / (kVecBytes / sizeof(C));
  const auto products = static_cast<uint32_t>(args.in_channels * args.taps);
  const uint32_t cycle = args.cycle.divisor, channels = block.channels;
  // Load taps and biases.
  for (uint32_t i = threadIdx.x; i < channels * kPitch; i += kChunkThreads) {
    const uint32_t m = i / kPitch, product = i % kPitch;
    const uint32_t c = product / static_cast<uint32_t>(args.taps);
    const uint32_t k = product - c * args.taps;
    C value = 0;
    if (product < products) {
      value = to_compute(block.weight[int64_t{m} * cycle * args.weight_out + c * args.weight_in +
                                      k * args.weight_tap]);
    } else if (product == kProducts) {
      value = block.bias(args, m);
    }
    taps[i] = value;
  }
  const int32_t first_output =
      static_cast<int32_t>(block.tile * (kChunkThreads * N)) - block.misaligned;
  const int32_t first_value = first_output * args.step - static_cast<int32_t>(args.padding);
  block.copy_inputs(args, vecs, first_value);
  wait_for_copies();
  __syncthreads();

  C window[kProducts][N];
  {
    const T* const values = reinterpret_cast<const T*>(vecs);
    const auto first = static_cast<int32_t>(threadIdx.x) * N * args.step;
    uint32_t c = 0;
    int32_t offset = first + block.ahead_of(args, first_value, 0), k = 0;
#pragma unroll
    for (int i = 0; i < kProducts; ++i) {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        window[i][j] = i < products ? to_compute(values[offset + j * args.step]) : C(0);
      }
      offset += args.dilation;
      if (++k == args.taps) {
        k = 0;
        ++c;
        offset = first + static_cast<int32_t>(c * args.row_vecs) * N +
                 block.ahead_of(args, first_value, c);
      }
    }
  }

  // Multiply and store, one channel per iteration.
  const int32_t begin = first_output + static_cast<int32_t>(threadIdx.x) * N;
  const auto size = static_cast<int32_t>(args.to_size);
  if (begin >= size) return;
  const bool whole = begin >= 0 && begin <= size - N;
  T* to = block.to + begin;
#pragma unroll 1
  for (uint32_t m = 0; m < channels; ++m) {
    C tap_values[kPitch];
    constexpr int V = kVecBytes / static_cast<int>(sizeof(C));
#pragma unroll
    for (int i = 0; i < kPitch; i += V) {
      const auto vec = load_vec<C, V>(taps + m * kPitch + i);
#pragma unroll
      for (int j = 0; j < V; ++j) tap_values[i + j] = vec.values[j];
    }
    C sums[N] = {};
    // Missing multiply-adds are 0 times 0.
#pragma unroll
    for (int i = 0; i < kProducts; ++i) {
#pragma unroll
      for (int j = 0; j < N; ++j) sums[j] = multiply_add(tap_values[i], window[i][j], sums[j]);
    }
    finish<T>(sums, args, tap_values[kProducts]);
    if (whole) {
      store_whole(to, narrow<T, N>(sums));
    } else {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        if (static_cast<uint32_t>(begin + j) < static_cast<uint32_t>(size)) {
          to[j] = from_compute<T>(sums[j]);
        }
      }
    }
    to += cycle * args.to_channel;
  }
}

template <Single T>
auto kernel_of(const ExpandPlan& plan) {
  return plan.products == 4    ? expand_kernel<T, 4>
         : plan.products == 6  ? expand_kernel<T, 6>
         : plan.products == 8  ? expand_kernel<T, 8>
         : plan.products == 10 ? expand_kernel<T, 10>
         : plan.products == 12 ? expand_kernel<T, 12>
                               : expand_kernel<T, 16>;
}

}  // namespace gpuopt::conv1d
