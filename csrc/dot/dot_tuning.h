// The numbers that a dot product's plan and kernels are built on, and the measurements that decided
// them.
#pragma once

#include <cstdint>

namespace gpuopt::dot {

// The shape of a launch that kernels are compiled for.
constexpr int kThreads = 256;
constexpr int kMostThreads = 1024;  // of line_kernel
// Blocks that an SM (a SM) holds at least, which sets the number of registers.
constexpr int kBlocks = 4;
// What a thread has in flight of each operand.
constexpr int kVecUnroll = 4;      // vectors
constexpr int kShiftedUnroll = 2;  // vectors of self that each meet parts of two of tensor
constexpr int kValueUnroll = 8;    // single values
constexpr int kWideUnroll = 4;     // single values of 8 bytes and more
constexpr int kFinishThreads = 512;

// Measured on an H200 (microseconds, f32 / bf16; L2 flushed from 2^23 values on, below that in CUDA
// graphs whose operands rotate):
//   kThreads: 2^17 values in f32 2.41 in blocks of 64, 2.44 of 128, 2.41 of 256, 2.54 of 512; 2^22
//     10.4, 10.3, 10.0, 9.7.
//   kVecUnroll: 2^12 values in one block 1.43 / 1.22 with 4 vectors, 1.51 / 1.16 with 2; 2^13 1.73
//   /
//     1.60 and 2.07 / 1.58; 2^28 476 / 248 with either. Where the device holds a lane for each
//     vector there is one: 2^18 2.72 / 2.56, with 4 2.90 / 2.63.
//   kShiftedUnroll: 2^25 with one operand misaligned 76.5 / 44.0 with 2 vectors, 95.6 / 60.2
//   with 4. line_blocks: 2^25 71.8 / 40.3 in 4, 72.2 / 40.3 in 8, 72.6 / 40.6 in 16, 75.5 / 41.0 in
//   32;
//     2^28 478, 476, 478, 476 / 248 each.
//   row_blocks: 2^25 misaligned alike 77.8 / 42.8 in 8, 75.3 / 40.7 in 32, 74.6 / 40.7 in 64;
//     (4,2^23) 75.2 / 41.5, 73.7 / 39.2, 71.3 / 39.7; (1024,32768) 74.4 / 40.9, 74.1 / 39.9, 71.6 /
//     40.5.
//   shifted_blocks: 2^25 misaligned differently 79.3 / 43.2 in 8, 76.5 / 44.0 in 32, 76.1 / 50.5 in
//     64.
//   value_blocks: a column of (1024,2^15) for each row 79.1 / 64.3 in 2, 75.9 / 57.0 in 4, 78.1 /
//     57.1 in 8, 78.1 / 65.9 in 32.
//   unsplit_vecs: 2^13 in f32 and 2^14 in bf16, 2048 vectors, 1.73 / 1.89 in one block, 2.09 / 2.13
//     in more; twice that 2.35 / 2.78 in one, 2.20 / 2.31 in more.
//   short_row_vecs: (2^19,64) 71.4 / 39.2 by several rows a lane, 76.1 / 41.2 by a row at a time.
//   tile_row_bytes: (2^23,3) 63 / 38 through shared memory, 96 / 100 value by value; (2^25,1) 100 /
//     77 and 350 / 368.
//   read_once: 2^24 40.3 / 24.1 with, 44.5 / 26.9 without; 2^25 72.5 / 40.7 and 74.4 / 45.3; 2^26
//     in f32 133 without, 136 with: worse where the operands are many times the L2.
//   unsplit_values: 1000 and 10000 values two apart 1.96 and 3.36 with 2048, 1.95 and 3.37 with
//     512.
// Not swept: kFinishThreads, kValueUnroll, kWideUnroll, tile_bytes, once_from, and of
// atomic_tuning() all but line_blocks, where 8 small blocks a SM lost 72% of 2^25
// values in bf16 and one large one 0.4%.
struct Tuning {
  // Blocks per SM, in a launch that splits rows.
  int line_blocks = 8;
  int row_blocks = 64;
  int shifted_blocks = 32;
  int value_blocks = 4;
  int line_threads = kThreads;  // of a block of line_kernel, at most
  // One block takes a row of at most so many vectors, or single values.
  int64_t unsplit_vecs = 2048;
  int64_t unsplit_values = 2048;
  int64_t short_row_vecs = 16;
  int64_t tile_row_bytes = 1024;
  int64_t tile_bytes = 16 << 10;
  // Operands of so many bytes are read once.
  int64_t once_from = 16 << 20, once_below = 384 << 20;
};

// Atomic additions are as many as blocks, and each one rounds: one large block a SM,
// where the kernel has one.
constexpr Tuning atomic_tuning() {
  Tuning tuning;
  tuning.line_blocks = 1;
  tuning.line_threads = kMostThreads;
  tuning.row_blocks = tuning.shifted_blocks = tuning.value_blocks = kBlocks;
  return tuning;
}

}  // namespace gpuopt::dot
