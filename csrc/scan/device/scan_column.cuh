// The columns of a thread, and scans over the threads of a warp that have the same columns.
#pragma once

#include "scan/device/scan_kernel.cuh"

namespace gpuopt::scan {

// The arguments of the kernels. kShared: the threads of a block copy tiles of single values
// together. Otherwise each thread copies its own units.
template <bool kShared>
using ColumnArgs = std::conditional_t<kShared, TileArgs, Args>;

// The row of the thread's first value in a tile, in the order of the scan. A thread has args.units
// rows.
__device__ __forceinline__ int64_t first_row(const Args& args, int64_t tile) {
  const int log_x = __popc(args.x - 1);  // x is a power of two
  return (tile * (blockDim.x >> log_x) + (threadIdx.x >> log_x)) * args.units;
}

// The warps, or the threads of a wider tile, that have the same columns form levels. A level has
// its totals in shared memory: [levels][x * N].
template <bool kShared>
__device__ __forceinline__ uint32_t threads_of_level(const Args& args) {
  return kShared ? max(args.x, uint32_t{kWarp}) : kWarp;  // a division by a constant is a shift
}

// The inclusive scan over the threads of a warp that hold the same columns.
template <typename Op>
__device__ __forceinline__ typename Op::Value scan_column(const Op& op, const Args& args,
                                                          typename Op::Value total) {
  for (uint32_t distance = args.x; distance < kWarp; distance *= 2) {
    const auto above = shuffle_up(total, distance);
    if (threadIdx.x % kWarp >= distance) total = op.combine(above, total);
  }
  return total;
}

// Replaces the total of each thread by the inclusive scan over its level, in `all`, and the
// exclusive one, in `before`.
template <typename Op>
__device__ __forceinline__ void scan_level(const Op& op, const Args& args, typename Op::Value total,
                                           typename Op::Value& all, typename Op::Value& before) {
  all = scan_column(op, args, total);
  before = op.identity();
  if (args.x >= kWarp) return;
  const auto above = shuffle_up(all, args.x);
  if (threadIdx.x % kWarp >= args.x) before = above;
}

// The columns of a thread, and whether they exist.
template <int N>
struct ColumnPlace {
  Offsets
      offsets;     // of the thread's first column at row 0; if kShared, of the block's first column
  uint32_t chain;  // of look-back
  uint32_t column;  // of the block, times N
  bool active;
  uint32_t firsts[2];   // if kShared: the block's first column, along both dimensions
  uint32_t indices[2];  // and the thread's column of the block
};

}  // namespace gpuopt::scan
