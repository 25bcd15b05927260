// Few bins and short rows, a histogram for instance: each block adds a stretch of the entries up in
// shared memory, in several copies of the bins, so that lanes of a warp that hit the same bin don't
// wait for each other; the blocks' sums are then added to self in one order. Where there are many
// outer indices a block takes several, which share what is read of the index.
#pragma once

#include "common/launch.cuh"
#include "index_add/index_add_values.cuh"

namespace gpuopt::index_add {

struct BinArgs {
  void* self = nullptr;
  const void* source = nullptr;
  Index index;
  int64_t bin_stride = 0;
  int64_t entry_stride = 0;
  int64_t self_inner_stride = 0;
  int64_t source_inner_stride = 0;
  FastDiv width;              // of a row
  uint32_t bins = 0;          // times width
  uint32_t values = 0;        // entries times width
  uint32_t split_values = 0;  // of a block
  FastDiv splits;
  uint32_t copies = 1;
  OuterDims outer;
  uint32_t outer_size = 0;
  ScalarValue alpha;
  void* split_sums = nullptr;  // [outer][split][bin], where there are several splits
};

template <typename T>
__device__ __forceinline__ void add_to_self(const BinArgs& args, uint32_t outer, uint32_t number,
                                            Sum<T> sum) {
  uint32_t bin = number;
  const uint32_t at = args.width.divmod(bin);
  T* self = static_cast<T*>(args.self) + outer_offsets(args.outer, outer).self +
            bin * args.bin_stride + at * args.self_inner_stride;
  *self = from_compute<T>(plus(to_compute(*self), sum));
}

// blockIdx: (group of R outer indices, split).
template <typename T, int R>
__global__ __launch_bounds__(kBinThreads) void add_in_bins(const BinArgs args) {
  using S = Sum<T>;
  constexpr int kEntries = kBinValues / R > 2 ? kBinValues / R : 2;  // that a thread has under way
  extern __shared__ uint4 shared_bins[];
  auto* bins = reinterpret_cast<S*>(shared_bins);  // [bin][outer][copy]
  uint32_t first_outer = blockIdx.x;
  const uint32_t split = args.splits.divmod(first_outer);
  first_outer *= R;
  const uint32_t copy = threadIdx.x % args.copies;
  const uint32_t bin_size = R * args.copies;
  for (uint32_t i = threadIdx.x; i < args.bins * bin_size; i += kBinThreads) bins[i] = kNothing<S>;
  __syncthreads();

  const auto alpha = from_scalar<S>(args.alpha);
  const T* sources[R];
#pragma unroll
  for (int r = 0; r < R; ++r) {  // past the last outer index its values are added up once more
    const uint32_t outer = min(first_outer + r, args.outer_size - 1);
    sources[r] = static_cast<const T*>(args.source) + outer_offsets(args.outer, outer).source;
  }
  const uint32_t begin = split * args.split_values;
  const uint32_t end = min(args.values, begin + args.split_values);
  for (uint32_t first = begin + threadIdx.x; first < end; first += kBinThreads * kEntries) {
    uint32_t bin[kEntries];
    T values[kEntries][R];
#pragma unroll
    for (int i = 0; i < kEntries; ++i) {
      uint32_t entry = first + i * kBinThreads;
      if (entry >= end) break;
      const uint32_t at = args.width.divmod(entry);
      const int64_t from = entry * args.entry_stride + at * args.source_inner_stride;
#pragma unroll
      for (int r = 0; r < R; ++r) values[i][r] = sources[r][from];
      bin[i] = static_cast<uint32_t>(args.index(entry)) * args.width.divisor + at;
    }
#pragma unroll
    for (int i = 0; i < kEntries; ++i) {
      if (first + i * kBinThreads >= end) break;
#pragma unroll
      for (int r = 0; r < R; ++r) {
        add_in_shared(&bins[bin[i] * bin_size + r * args.copies + copy],
                      scaled(to_compute(values[i][r]), alpha));
      }
    }
  }
  __syncthreads();

  for (uint32_t i = threadIdx.x; i < args.bins * R; i += kBinThreads) {
    S sum = kNothing<S>;
    for (uint32_t c = 0; c < args.copies; ++c) {  // each lane from another bank on
      sum = plus(sum, bins[i * args.copies + (c + threadIdx.x) % args.copies]);
    }
    const uint32_t bin = i / R, outer = first_outer + i % R;
    if (outer >= args.outer_size) continue;
    if (args.splits.divisor == 1) {
      add_to_self<T>(args, outer, bin, sum);
    } else {
      const uint64_t row = uint64_t{outer} * args.splits.divisor + split;
      static_cast<S*>(args.split_sums)[row * args.bins + bin] = sum;
    }
  }
  let_next_grid_start();
}

constexpr int kBinSumsX = 32, kBinSumsY = 8;

// blockIdx: (outer, 32 bins); a warp sums an eighth of the splits.
template <typename T>
__global__ __launch_bounds__(kBinSumsX* kBinSumsY) void add_split_sums(const BinArgs args) {
  using S = Sum<T>;
  __shared__ S sums[kBinSumsY][kBinSumsX];
  const uint32_t blocks = (args.bins - 1) / kBinSumsX + 1;
  const uint32_t outer = blockIdx.x / blocks;
  const uint32_t x = threadIdx.x % kBinSumsX, y = threadIdx.x / kBinSumsX;
  const uint32_t bin = blockIdx.x % blocks * kBinSumsX + x;
  wait_for_grid_before();
  S sum = kNothing<S>;
  if (bin < args.bins) {
    const uint32_t splits = args.splits.divisor;
    const S* from = static_cast<const S*>(args.split_sums) + uint64_t{outer} * splits * args.bins;
#pragma unroll 4
    for (uint32_t s = y; s < splits; s += kBinSumsY) {
      sum = plus(sum, from[uint64_t{s} * args.bins + bin]);
    }
  }
  sums[y][x] = sum;
  __syncthreads();
  if (y > 0 || bin >= args.bins) return;
#pragma unroll
  for (int i = 1; i < kBinSumsY; ++i) sum = plus(sum, sums[i][x]);
  add_to_self<T>(args, outer, bin, sum);
}

}  // namespace gpuopt::index_add
