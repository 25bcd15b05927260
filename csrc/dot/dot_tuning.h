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
// blocks, for 8, 32 and 64 blocks per SM:
//   2^25 values, both misaligned alike: 77.8 / 42.8, 75.3 / 40.7, 74.6 / 40.7.
//   2^25 values, misaligned differently: 79.3 / 43.2, 76.5 / 44.0, 76.1 / 50.5.
//   Each row a column of (1024,2^15), for 4, 8 and 32: 75.9 / 57.0, 78.1 / 57.1, 78.1 / 65.9.
//   With 16, one aligned row is as fast as with 8, rows are 3% slower than with 64, and columns 3%
//   slower than with 4 (limits.jsonl).
// unsplit:
//   2048 vectors (2^13 values in f32, 2^14 in bf16): 1.73 / 1.89 in one block, 2.09 / 2.13 in more.
//   4096 vectors: 2.35 / 2.78 in one block, 2.20 / 2.31 in more.
// tile_row_bytes:
//   (2^23,3): 63 / 38 through shared memory, 96 / 100 value by value.
//   (2^25,1): 100 / 77 through shared memory, 350 / 368 value by value.
// tile_bytes, for 16 and 8 KB:
//   (461648,2) in f16: 6.7, 4.3. (7312,5) in bf16: 2.29, 1.63 (limits.jsonl).
// Not measured: kFinishThreads, kValueUnroll and kWideUnroll.
struct Tuning {
  int blocks = 16;         // per SM, if rows are split
  int64_t unsplit = 2048;  // one block reads a row of at most so many vectors or single values
  int64_t tile_row_bytes = 1024;        // bytes of a row on path "tile", at most
  int64_t tile_bytes = 8 << 10;         // bytes of a tile in shared memory, about
  int64_t launch_blocks = kMaxIndex32;  // the most blocks of a launch

  GPUOPT_DESCRIBE(blocks, unsplit, tile_row_bytes, tile_bytes, launch_blocks)
};

}  // namespace gpuopt::dot
