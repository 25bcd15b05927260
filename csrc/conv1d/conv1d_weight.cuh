// Weight gradients: sums over all places of all images of a gradient times the input under it.
// Blocks make partial sums of some taps in a fixed order; a second launch adds them up.
#pragma once

#include "common/warp.cuh"
#include "conv1d/conv1d_kernel.cuh"

namespace gpuopt::conv1d {

// [split][weight], or the gradient itself where there is one split.
struct WeightArgs {
  const void *from, *grad;
  void* to;
  const char *from_first_pack, *from_last_pack, *grad_first_pack, *grad_last_pack;  // see Rows
  int64_t from_batch, from_channel, from_stride, grad_batch, grad_channel, grad_stride;
  int64_t from_size, grad_size, step, padding, dilation;
  int64_t batch, weights;                    // weights of the gradient in all
  int64_t unit_images, unit_places;          // to a lane's next place, of kernels by value
  uint32_t taps, in_channels, out_channels;  // channels of a group
  FastDiv splits, tap_parts, in_parts, out_parts;
  // Of weight_rows_kernel: tiles in all; rows of one at most, and packs behind those under a row's
  // lanes.
  uint32_t tiles, tile_rows, halo_packs;
  FastDiv row_lanes;
  bool partial;
};

// The values of a warp's lanes are summed: lane i is left with the sums from i * kCount / 32 on, of
// which there are max(kCount / 32, 1); of fewer than 32 values several lanes have each one.
template <int kCount, int kMask = 16, typename C, int kSize>
__device__ __forceinline__ void sum_warp(C (&values)[kSize]) {
  if constexpr (kCount > 1) {
    const bool upper = threadIdx.x & kMask;
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const C first = values[i], second = values[i + kCount / 2];
      const C kept = upper ? second : C(first), given = upper ? first : C(second);
      values[i] = kept + shuffle_xor(given, kMask);
    }
  } else {
    values[0] = values[0] + shuffle_xor(values[0], kMask);
  }
  if constexpr (kMask > 1) sum_warp<(kCount > 1 ? kCount / 2 : 1), kMask / 2>(values);
}

// The sums over the block of kCount values, by emit(i, sum) for each i.
template <int kCount, typename C, typename Emit>
__device__ __forceinline__ void sum_block(C (&values)[kCount], Emit&& emit) {
  static_assert(kCount <= 32);
  constexpr int kWarps = kThreads / 32, kLanes = 32 / kCount;  // that have the same value
  __shared__ C sums[kWarps][kCount];
  sum_warp<kCount>(values);
  if (threadIdx.x % kLanes == 0) sums[threadIdx.x / 32][threadIdx.x % 32 / kLanes] = values[0];
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < kCount; i += kThreads) {
    C sum = sums[0][i];
#pragma unroll
    for (int warp = 1; warp < kWarps; ++warp) sum += sums[warp][i];
    emit(i, sum);
  }
}

template <typename T>
__device__ __forceinline__ void emit_weight(const WeightArgs& args, uint32_t split, int64_t index,
                                            compute_t<T> sum) {
  if (args.partial) {
    static_cast<compute_t<T>*>(args.to)[split * args.weights + index] = sum;
  } else {
    static_cast<T*>(args.to)[index] = from_compute<T>(sum);
  }
}

// Places of a lane, from an aligned one on.
template <typename T>
constexpr int kWeightOutputs = 32 / sizeof(T);

// Gradients of `kTaps` taps between one input and one output channel, along contiguous rows of step
// 1. Tiles of the gradient and of the input under it are copied to shared memory, one while the one
// before is worked on.
template <typename T, int kTaps, bool kDilated>
__global__ void __launch_bounds__(kThreads, kTaps > 16 || sizeof(T) == 8 ? 2 : 3)
    weight_rows_kernel(const __grid_constant__ WeightArgs args) {
  using C = compute_t<T>;
  constexpr int N = kPackSize<T>, P = kWeightOutputs<T>, K = kRowTaps<T>;
  constexpr int kStep = kTaps < K ? kTaps : K;
  extern __shared__ uint4 shared[];
  let_next_grid_start();
  uint32_t out_channel = blockIdx.x;
  const uint32_t split = args.splits.divmod(out_channel);
  const uint32_t tap_part = args.tap_parts.divmod(out_channel);
  const uint32_t in_channel = args.in_parts.divmod(out_channel);
  const uint32_t group = out_channel / args.out_channels;
  const auto first_tap = static_cast<int32_t>(tap_part * kTaps);
  const int32_t taps = min(static_cast<int32_t>(args.taps) - first_tap, kTaps);
  wait_for_grid_before();

  const Rows<T> from_rows{args.from_first_pack, args.from_last_pack};
  const Rows<T> grad_rows{args.grad_first_pack, args.grad_last_pack};
  const T* const from = static_cast<const T*>(args.from) +
                        (int64_t{group} * args.in_channels + in_channel) * args.from_channel;
  const T* const grad = static_cast<const T*>(args.grad) + out_channel * args.grad_channel;
  const auto from_size = static_cast<int32_t>(args.from_size);
  const auto grad_size = static_cast<int32_t>(args.grad_size);
  const auto dilation = static_cast<int32_t>(args.dilation);
  const int32_t offset = first_tap * dilation - static_cast<int32_t>(args.padding);
  const uint32_t grad_packs = kThreads * (P / N);
  const uint32_t stage_packs = 2 * grad_packs + args.tile_rows * args.halo_packs;

  // The segment of a tile that the lane is of.
  struct Part {
    const T *grads, *row;
    int32_t begin;   // the lane's place in the row of the gradient: an aligned one
    int32_t first;   // of the lanes of the segment
    uint32_t packs;  // the input's under the lane, in shared memory
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
    part.begin = static_cast<int32_t>(segment.lane) * P -
                 static_cast<int32_t>(reinterpret_cast<uintptr_t>(part.grads) / sizeof(T) % N);
    part.first = part.begin - part.index * P;
    part.packs = grad_packs + threadIdx.x * (P / N) + segment.block_row * args.halo_packs;
    return part;
  };
  const auto ahead_of = [&](const Part& part) {
    return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(part.row + part.begin + offset) %
                                 kPackBytes);
  };
  const auto copy = [&](const Part& part, uint4* to) {
    if (part.valid) {
      const int32_t under = part.lanes * (P / N), before = part.index * (P / N);
      grad_rows.copy_packs(to + threadIdx.x * (P / N) - before, part.grads, part.first, grad_size,
                           under, part.index, part.lanes);
      from_rows.copy_packs(to + part.packs - before, part.row,
                           part.first + offset - static_cast<int32_t>(ahead_of(part) / sizeof(T)),
                           from_size, under + static_cast<int32_t>(args.halo_packs), part.index,
                           part.lanes);
    }
    end_copy_group();
  };

  C sums[kTaps] = {};
  uint32_t tile = split, stage = 0;
  Part next = part_of(tile);
  copy(next, shared);
  while (tile < args.tiles) {
    const Part part = next;
    tile += args.splits.divisor;
    if (tile < args.tiles) {
      next = part_of(tile);
      copy(next, shared + (stage ^ 1) * stage_packs);
      wait_for_copy_groups<1>();
    } else {
      wait_for_copy_groups<0>();
    }
    __syncthreads();
    const uint4* const grads = shared + stage * stage_packs + threadIdx.x * (P / N);
    const uint4* const packs = shared + stage * stage_packs + part.packs;
    const int32_t begin = part.begin;
    if (part.valid && begin < grad_size) {
      C own[P];
#pragma unroll
      for (int i = 0; i < P / N; ++i) {
        widen<T>(own + i * N, pack_of<T>(grads[i]));
      }
      const uint32_t ahead = ahead_of(part);
      // Places that there are not are left out: 0 times an infinite value is NaN.
      const bool whole = begin >= 0 && begin <= grad_size - P;
      if constexpr (kDilated) {
#pragma unroll
        for (int k = 0; k < kTaps; ++k) {
          if (k < taps) {
            const uint32_t place = ahead + static_cast<uint32_t>(k * dilation) * sizeof(T);
            uint4 raw[P / N + 1];
            read_packs(raw, packs + place / kPackBytes);
            C window[P];
            shift_in<T, P / N>(window, raw, place % kPackBytes);
#pragma unroll
            for (int i = 0; i < P; ++i) {
              if (whole || static_cast<uint32_t>(begin + i) < static_cast<uint32_t>(grad_size)) {
                sums[k] = multiply_add(own[i], window[i], sums[k]);
              }
            }
          }
        }
      } else {
        C window[P + K];
        uint4 last;
        {
          uint4 raw[(P + K) / N + 1];
          read_packs(raw, packs);
          shift_in<T, (P + K) / N>(window, raw, ahead);
          last = raw[(P + K) / N];
        }
#pragma unroll
        for (int k = 0; k < kTaps; k += K) {
          if (k < taps) {
            if (whole) {
#pragma unroll
              for (int t = 0; t < kStep; ++t) {
#pragma unroll
                for (int i = 0; i < P; ++i) {
                  sums[k + t] = multiply_add(own[i], window[i + t], sums[k + t]);
                }
              }
            } else {
#pragma unroll
              for (int i = 0; i < P; ++i) {
                if (static_cast<uint32_t>(begin + i) < static_cast<uint32_t>(grad_size)) {
#pragma unroll
                  for (int t = 0; t < kStep; ++t) {
                    sums[k + t] = multiply_add(own[i], window[i + t], sums[k + t]);
                  }
                }
              }
            }
            if (k + K < kTaps && k + K < taps) {
              uint4 raw[K / N + 1];
              raw[0] = last;
#pragma unroll
              for (int i = 0; i < K / N; ++i) raw[i + 1] = packs[(P + k + K) / N + 1 + i];
#pragma unroll
              for (int i = 0; i < P; ++i) window[i] = window[i + K];
              shift_in<T, K / N>(window + P, raw, ahead);
              last = raw[K / N];
            }
          }
        }
      }
    }
    __syncthreads();
    stage ^= 1;
  }
  sum_block<kTaps>(sums, [&](uint32_t i, C sum) {
    if (static_cast<int32_t>(i) >= taps) return;
    const int64_t index =
        (int64_t{out_channel} * args.in_channels + in_channel) * args.taps + first_tap + i;
    emit_weight<T>(args, split, index, sum);
  });
}

// A place of the gradient, in the kernels below: of a lane one after another, always as far apart.
struct WeightUnit {
  int64_t left, image, place;  // how many are left, this one included

  // Every `apart`th from `unit` on.
  __device__ __forceinline__ WeightUnit(const WeightArgs& args, int64_t unit, int64_t apart)
      : left((args.batch * args.grad_size - unit + apart - 1) / apart),
        image(unit / args.grad_size),
        place(unit - image * args.grad_size) {}

  __device__ __forceinline__ void move_on(const WeightArgs& args) {
    --left;
    image += args.unit_images;
    place += args.unit_places;
    if (place >= args.grad_size) {
      place -= args.grad_size;
      ++image;
    }
  }
};

// The values under a unit's taps, 0 for those outside of a row. All loads are under way at once: of
// conditions the compiler may make branches, one load after the other (depthwise (1,4075,16) with
// 14 taps and step 3, f32: 22 us; 15 without branches).
template <typename T, int kTaps>
__device__ __forceinline__ void load_under(compute_t<T> (&values)[kTaps], const WeightArgs& args,
                                           const T* row, int64_t under, uint32_t first_tap) {
  T loaded[kTaps];
#pragma unroll
  for (int k = 0; k < kTaps; ++k) {
    const bool valid = first_tap + k < args.taps &&
                       static_cast<uint64_t>(under) < static_cast<uint64_t>(args.from_size);
    loaded[k] = load_if(row + under * args.from_stride, valid);
    under += args.dilation;
  }
#pragma unroll
  for (int k = 0; k < kTaps; ++k) values[k] = to_compute(loaded[k]);
}

// Weight gradients of any strides and steps, for kTaps taps and kChannels output channels at once.
template <typename T, int kChannels, int kTaps>
__global__ void __launch_bounds__(kThreads)
    weight_values_kernel(const __grid_constant__ WeightArgs args) {
  using C = compute_t<T>;
  constexpr int K = kTaps;
  let_next_grid_start();
  uint32_t group = blockIdx.x;
  const uint32_t split = args.splits.divmod(group);
  const uint32_t first_tap = args.tap_parts.divmod(group) * K;
  const uint32_t in_channel = args.in_parts.divmod(group);
  const uint32_t channel = args.out_parts.divmod(group) * kChannels;
  wait_for_grid_before();
  const T* const from = static_cast<const T*>(args.from) +
                        (int64_t{group} * args.in_channels + in_channel) * args.from_channel;
  const T* const grad = static_cast<const T*>(args.grad) +
                        (int64_t{group} * args.out_channels + channel) * args.grad_channel;
  C sums[kChannels * K] = {};
  const int64_t offset = int64_t{first_tap} * args.dilation - args.padding;
  WeightUnit unit(args, int64_t{split} * kThreads + threadIdx.x,
                  int64_t{args.splits.divisor} * kThreads);
  for (; unit.left > 0; unit.move_on(args)) {
    const int64_t image = unit.image, place = unit.place;
    const T* const grads = grad + image * args.grad_batch + place * args.grad_stride;
    C own[kChannels];
#pragma unroll
    for (int m = 0; m < kChannels; ++m) {
      const bool valid = channel + m < args.out_channels;
      own[m] = to_compute(grads[valid ? m * args.grad_channel : 0]);
    }
    C values[K];
    load_under(values, args, from + image * args.from_batch, place * args.step + offset, first_tap);
#pragma unroll
    for (int k = 0; k < K; ++k) {
#pragma unroll
      for (int m = 0; m < kChannels; ++m) {
        sums[m * K + k] = multiply_add(own[m], values[k], sums[m * K + k]);
      }
    }
  }
  sum_block<kChannels * K>(sums, [&](uint32_t i, C sum) {
    const uint32_t m = channel + i / K, tap = first_tap + i % K;
    if (m >= args.out_channels || tap >= args.taps) return;
    const int64_t out_channel = int64_t{group} * args.out_channels + m;
    emit_weight<T>(args, split, (out_channel * args.in_channels + in_channel) * args.taps + tap,
                   sum);
  });
}

constexpr int kWeightTaps = 8;  // of a block

// The same with lanes along the output channels, which are neighbours in memory.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    weight_columns_kernel(const __grid_constant__ WeightArgs args) {
  using C = compute_t<T>;
  constexpr int K = kWeightTaps, kRows = kThreads / 32;
  __shared__ C shared_sums[kRows][32][K + 1];
  let_next_grid_start();
  uint32_t part = blockIdx.x;
  const uint32_t split = args.splits.divmod(part);
  const uint32_t first_tap = args.tap_parts.divmod(part) * K;
  const uint32_t in_channel = args.in_parts.divmod(part);
  const uint32_t lane = threadIdx.x % 32, y = threadIdx.x / 32;
  const uint32_t channel = part * 32 + lane;
  const auto channels = static_cast<uint32_t>(args.weights / args.in_channels / args.taps);
  wait_for_grid_before();
  C sums[K] = {};
  if (channel < channels) {
    const uint32_t group = channel / args.out_channels;
    const T* const from = static_cast<const T*>(args.from) +
                          (int64_t{group} * args.in_channels + in_channel) * args.from_channel;
    const T* const grad = static_cast<const T*>(args.grad) + channel * args.grad_channel;
    const int64_t offset = int64_t{first_tap} * args.dilation - args.padding;
    WeightUnit unit(args, int64_t{split} * kRows + y, int64_t{args.splits.divisor} * kRows);
    for (; unit.left > 0; unit.move_on(args)) {
      const int64_t image = unit.image, place = unit.place;
      const C own = to_compute(grad[image * args.grad_batch + place * args.grad_stride]);
      C values[K];
      load_under(values, args, from + image * args.from_batch, place * args.step + offset,
                 first_tap);
#pragma unroll
      for (int k = 0; k < K; ++k) sums[k] = multiply_add(own, values[k], sums[k]);
    }
  }
#pragma unroll
  for (int k = 0; k < K; ++k) shared_sums[y][lane][k] = sums[k];
  __syncthreads();
  const uint32_t out_lane = threadIdx.x / K, k = threadIdx.x % K;
  const uint32_t out_channel = part * 32 + out_lane;
  if (out_channel >= channels || first_tap + k >= args.taps) return;
  C sum = shared_sums[0][out_lane][k];
#pragma unroll
  for (int row = 1; row < kRows; ++row) sum += shared_sums[row][out_lane][k];
  emit_weight<T>(args, split,
                 (int64_t{out_channel} * args.in_channels + in_channel) * args.taps + first_tap + k,
                 sum);
}

// A warp for each weight adds up its partial sums.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    finish_kernel(const compute_t<T>* sums, T* to, int64_t weights, uint32_t splits) {
  let_next_grid_start();
  wait_for_grid_before();
  const int64_t weight = int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
  if (weight >= weights) return;
  compute_t<T> sum = {};
  for (uint32_t split = threadIdx.x % 32; split < splits; split += 32) {
    sum += sums[split * weights + weight];
  }
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
  if (threadIdx.x % 32 == 0) to[weight] = from_compute<T>(sum);
}

}  // namespace gpuopt::conv1d
