// The constants of dot products and the measurements behind them.
#pragma once

#include <cstdint>

#include "common/describe.h"
#include "common/index.h"

namespace gpuopt::dot {

// Threads per block in all kernels except line_kernel and finish_kernel. Kernels are compiled for
// this number.
constexpr int kThreads = 256;
constexpr int kMostThreads = 1024;  // threads per block of line_kernel, at most
// Blocks that an SM must hold, which limits the registers of a thread.
constexpr int kBlocks = 4;
// Loads of each operand that a thread has in flight.
constexpr int kVecUnroll = 4;        // vectors
constexpr int kShiftedUnroll = 2;    // vectors of self, if each needs two vectors of tensor
constexpr int kValueUnroll = 8;      // single values
constexpr int kWideUnroll = 4;       // single values of 8 bytes and more
constexpr int kFinishThreads = 512;  // threads per block of finish_kernel, at most

// Measurements on an H200: microseconds in f32 / bf16. The L2 cache is flushed from 2^23 values on.
// Smaller problems run in CUDA graphs whose operands rotate.
//
// kThreads, for blocks of 64, 128, 256 and 512 threads, f32:
//   2^17 values: 2.41, 2.44, 2.41, 2.54. 2^22 values: 10.4, 10.3, 10.0, 9.7.
// kVecUnroll, for 4 and 2 vectors in flight:
//   2^12 values in one block: 1.43 / 1.22, 1.51 / 1.16. 2^13 values: 1.73 / 1.60, 2.07 / 1.58.
//   2^28 values: 476 / 248 with either.
//   If the device holds a thread for each vector, a thread has 1 vector: 2^18 values take
//   2.72 / 2.56 with 1, 2.90 / 2.63 with 4.
// kShiftedUnroll, for 2 and 4 vectors in flight:
//   2^25 values, one operand misaligned: 76.5 / 44.0, 95.6 / 60.2.
// line_blocks, for 4, 8, 16 and 32 blocks per SM:
//   2^25 values: 71.8 / 40.3, 72.2 / 40.3, 72.6 / 40.6, 75.5 / 41.0.
//   2^28 values: 478, 476, 478, 476 in f32; 248 in bf16 with each.
// row_blocks, for 8, 32 and 64 blocks per SM:
//   2^25 values, both misaligned alike: 77.8 / 42.8, 75.3 / 40.7, 74.6 / 40.7.
//   (4,2^23): 75.2 / 41.5, 73.7 / 39.2, 71.3 / 39.7.
//   (1024,32768): 74.4 / 40.9, 74.1 / 39.9, 71.6 / 40.5.
// shifted_blocks, for 8, 32 and 64 blocks per SM:
//   2^25 values, misaligned differently: 79.3 / 43.2, 76.5 / 44.0, 76.1 / 50.5.
// value_blocks, for 2, 4, 8 and 32 blocks per SM:
//   Each row a column of (1024,2^15): 79.1 / 64.3, 75.9 / 57.0, 78.1 / 57.1, 78.1 / 65.9.
// unsplit_vecs:
//   2048 vectors (2^13 values in f32, 2^14 in bf16): 1.73 / 1.89 in one block, 2.09 / 2.13 in more.
//   4096 vectors: 2.35 / 2.78 in one block, 2.20 / 2.31 in more.
// unsplit_values, for 2048 and 512:
//   1000 values two apart: 1.96, 1.95. 10000 values: 3.36, 3.37.
// short_row_vecs:
//   (2^19,64): 71.4 / 39.2 with several rows per thread, 76.1 / 41.2 with one row at a time.
// tile_row_bytes:
//   (2^23,3): 63 / 38 through shared memory, 96 / 100 value by value.
//   (2^25,1): 100 / 77 through shared memory, 350 / 368 value by value.
// tile_bytes, for 16 and 8 KB:
//   (461648,2) in f16: 6.7, 4.3. (7312,5) in bf16: 2.29, 1.63 (limits.jsonl).
// Line blocks of atomic_tuning(), 2^25 values in bf16:
//   1056 blocks of 256 threads (8 per SM) lose 72% of the result, one large block per SM 0.4%.
// Not measured: kFinishThreads, kValueUnroll, kWideUnroll, and the other
// constants of atomic_tuning().
struct Tuning {
  int line_blocks = 8;          // per SM, if a row on path "line" is split
  int row_blocks = 64;          // per SM, if rows on path "rows" are split
  int shifted_blocks = 32;      // per SM, as row_blocks, if self and tensor are aligned differently
  int value_blocks = 4;         // per SM, if rows on path "values" are split
  int line_threads = kThreads;  // threads per block of line_kernel, at most
  int64_t unsplit_vecs = 2048;  // one block reads a row of at most so many vectors
  int64_t unsplit_values = 2048;  // one block reads a row of at most so many single values
  // Neighbouring rows of half as many tiles as SMs, or fewer, are split if a thread reads a row in
  // at least so many groups. (575,1536) in bf16 has 18 blocks and 24 groups: unsplit 21 us, split
  // 4.4 us (H200). Other limits were not tried.
  int64_t split_groups = 4;
  int64_t short_row_vecs = 16;          // vectors of a row on path "short rows", at most
  int64_t tile_row_bytes = 1024;        // bytes of a row on path "tile", at most
  int64_t tile_bytes = 8 << 10;         // bytes of a tile in shared memory, about
  int64_t launch_blocks = kMaxIndex32;  // the most blocks of a launch

  GPUOPT_DESCRIBE(line_blocks, row_blocks, shifted_blocks, value_blocks, line_threads, unsplit_vecs,
                  unsplit_values, split_groups, short_row_vecs, tile_row_bytes, tile_bytes,
                  launch_blocks)
};

// The constants of sums that are added atomically. Every block makes one atomic addition, and every
// addition rounds. So there is one large block per SM on path "line", and kBlocks blocks on the
// other paths.
constexpr Tuning atomic_tuning(Tuning tuning) {
  tuning.line_blocks = 1;
  tuning.line_threads = kMostThreads;
  tuning.row_blocks = tuning.shifted_blocks = tuning.value_blocks = kBlocks;
  return tuning;
}

}  // namespace gpuopt::dot
