// The numbers that a reduction's plan and kernels are built on, and the measurements that decided
// them.
#pragma once

#include <cstdint>

namespace gpuopt::reduce {

// The shape of a launch that kernels are compiled for.
constexpr int kThreads = 256;
// Blocks that an SM (a SM) holds at least, which sets the number of registers.
constexpr int kBlocks = 4;
// What a thread has in flight.
constexpr int kVecUnroll = 4;    // vectors
constexpr int kValueUnroll = 8;  // single values
constexpr int kWideUnroll = 4;  // single values of 8 bytes and more, or of a type known at run time
constexpr int kFinishThreads = 512;

// Measured on an H200 (microseconds, f32 / bf16; L2 flushed but for graphs, where inputs rotate):
//   read_once: rows of (32768,1024) 42.9 / 26.8 without, 37.4 / 22.7 with; 2^28 values 251 / 136
//     and 266 / 145: worse where the input is many times the L2. At 268 MB they are equal. Outputs
//     that are much of the traffic want their lines to stay: (2^23,4) dim 1 54 with, 46 without.
//   row_blocks: all of 2^25 values 41.8 / 24.6 in 4 blocks a SM, 41.5 / 24.6 in 8, 41.0
//     / 24.6 in 32; (128,262144) dim 1 43.7 / 25.4, 42.0 / 24.9, 40.1 / 24.5. Several rows to an
//     output, (64,256,56,56) dims 0, 2, 3: 60.9 / 35.1 in 4, 61.1 / 36.5 in 8, 62.3 / 37.7 in 32.
//   column_blocks: (32768,1024) dim 0 41.2 / 25.2 in 2, 40.2 / 24.5 in 3, 41.2 / 24.5 in 4;
//     (16,4096,1024) dim 1 77.1 / 43.4, 75.4 / 43.0, 75.2 / 42.3.
//   wide: columns of 32 to 128 values 41.9 / 24.7 to 39.8 / 23.7 in blocks of 32 vectors, 41.0
//   / 24.1
//     to 39.3 / 22.8 in 64; longer ones up to 25.8 instead of 23.1 (bf16) in 64.
//   short_row_vecs: (2^20,32) 41 / 27 by several rows a lane, 60 / 59 by a row at a time.
//   unsplit_groups: 2^14 values in f32, 4 groups, took 3.6 in one block (cold inputs), 2^17 in 32
//     blocks and two launches 3.4.
struct Tuning {
  int row_blocks = 32;       // per SM, where an output has one row that is split
  int many_rows_blocks = 4;  // per SM, where an output has several rows that are split
  int column_blocks = 3;     // per SM, where columns are split
  // Rows get more threads where an SM has fewer than these.
  int row_threads = 256;
  // One block takes an output of at most so many groups of units in flight.
  int64_t unsplit_groups = 2;
  int64_t short_row_vecs = 8;
  int64_t tile_row_bytes = 1024;
  int64_t tile_bytes = 16 << 10;
  int64_t wide = 32;           // vectors of a block of columns, side by side
  int64_t wide_short = 64;     // vectors of a block of short columns, side by side
  int64_t wide_values = 128;   // single values of a block of columns, side by side
  int64_t short_column = 128;  // units of a short column, at most
  // Unaligned columns are read once if they have more units than this.
  int64_t unaligned_once_above = 8;
  // Inputs of so many bytes are read once.
  int64_t once_from = 16 << 20, once_below = 256 << 20;
};

}  // namespace gpuopt::reduce
