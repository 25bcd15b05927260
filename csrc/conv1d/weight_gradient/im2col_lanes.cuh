// Weight gradients by im2col without tensor cores, for f32: a thread sums kRows channels times
// kProducts products over its positions, and reads inputs from phases (phases.h).
#pragma once

#include "conv1d/device/phases.cuh"
#include "conv1d/weight_gradient/im2col.h"
#include "conv1d/weight_gradient/sums.cuh"

namespace gpuopt::conv1d {

template <typename T, int kRows, int kProducts>
__global__ void __launch_bounds__(kChunkThreads, im2col_blocks(false))
    im2col_lanes_kernel(const __grid_constant__ Im2colArgs args) {
  constexpr int kSums = kRows * kProducts;
  static_assert(kSums % 32 == 0);
  extern __shared__ uint4 shared[];
  launch_dependents();
  const uint32_t lane = threadIdx.x % 32, threads = blockDim.x;
  uint32_t group = blockIdx.x, channel_warp = threadIdx.x / 32;
  const uint32_t product_warp = args.product_warps.divmod(channel_warp);
  const uint32_t channel_warps = threads / 32 / args.product_warps.divisor;
  const uint32_t split = args.splits.divmod(group), splits = args.splits.divisor;
  const uint32_t first_product =
      (args.tap_parts.divmod(group) * args.product_warps.divisor + product_warp) * kProducts;
  const uint32_t first_row = (args.out_parts.divmod(group) * channel_warps + channel_warp) * kRows;
  const uint32_t rows =
      first_row < args.out_channels ? min(args.out_channels - first_row, uint32_t{kRows}) : 0;
  grid_dependency_wait();

  const T* const from =
      static_cast<const T*>(args.from) + int64_t{group} * args.in_channels * args.from_channel;
  const T* const grad = static_cast<const T*>(args.grad) +
                        (int64_t{group} * args.out_channels + first_row) * args.grad_channel;
  const auto batch = static_cast<uint32_t>(args.batch);
  const auto grad_size = static_cast<uint32_t>(args.grad_size);
  const uint32_t positions = args.tile_positions.divisor;
  // The offset of each product's input from its position. Missing products repeat the last one.
  T* const inputs = reinterpret_cast<T*>(shared);
  uint32_t offsets[kProducts];
#pragma unroll
  for (uint32_t q = 0; q < kProducts; ++q) {
    offsets[q] = args.phases.offset_of(min(first_product + q, args.products - 1));
  }
  // A position of the gradient in all channels.
  struct Position {
    T grads[kRows];
    bool exists;
    uint32_t at;  // in shared memory
  };
  T sums[kSums] = {};
#pragma unroll 1
  for (uint32_t tile = split; tile < args.units; tile += splits) {
    uint32_t first_image = tile;
    const uint32_t begin = args.row_units.divmod(first_image) * positions;
    first_image *= args.tile_images;
    const uint32_t images = min(args.tile_images, batch - first_image);
    const auto load = [&](uint32_t index) {
      uint32_t row = index;
      const uint32_t position = args.tile_positions.divmod(row);
      Position loaded;
      loaded.exists = row < images && begin + position < grad_size;
      loaded.at = row * args.in_channels * args.phases.row_pitch + position;
      const T* const grad_at =
          grad + (first_image + row) * args.grad_batch + (begin + position) * args.grad_stride;
#pragma unroll
      for (uint32_t r = 0; r < kRows; ++r) {
        loaded.grads[r] = load_if(grad_at + r * args.grad_channel, loaded.exists && r < rows);
      }
      return loaded;
    };
    if (tile != split) __syncthreads();  // the previous inputs are read
    // Load.
    Position next = load(lane);
    copy_phases(inputs, args.phases, images * args.in_channels,
                static_cast<int32_t>(begin * args.step - args.padding),
                static_cast<int32_t>(args.from_size), args.from_stride, [&](uint32_t row) {
                  const uint32_t c = args.in_parts.divmod(row);
                  return from + (first_image + row) * args.from_batch + c * args.from_channel;
                });
    wait_for_copies();
    __syncthreads();

    // Multiply.
#pragma unroll 1
    for (uint32_t index = lane; index < images * positions; index += 32) {
      const Position loaded = next;
      next = load(index + 32);
      if (!loaded.exists) continue;
      const T* const under = inputs + loaded.at;
#pragma unroll
      for (int q = 0; q < kProducts; ++q) {
        const T value = under[offsets[q]];
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          sums[r * kProducts + q] = multiply_add(loaded.grads[r], value, sums[r * kProducts + q]);
        }
      }
    }
  }

  // Reduce within the warps, and store.
#pragma unroll
  for (int i = 0; i < kSums; i += 32) {
    T some[32];
#pragma unroll
    for (int j = 0; j < 32; ++j) some[j] = sums[i + j];
    sum_warp<32>(some);
    const uint32_t r = (i + lane) / kProducts, product = first_product + (i + lane) % kProducts;
    if (r < rows && product < args.products) {
      const int64_t channel = int64_t{group} * args.out_channels + first_row + r;
      emit_weight<T>(args, split, channel * args.products + product, some[0]);
    }
  }
}

}  // namespace gpuopt::conv1d
