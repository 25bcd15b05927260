// The constants of reductions and the measurements behind them.
#pragma once

#include <cstdint>

#include "common/describe.h"
#include "common/index.h"

namespace gpuopt::reduce {

// Threads per block in all kernels except finish_kernel. Kernels are compiled for this number.
constexpr int kThreads = 256;
// Blocks that an SM must hold, which limits the registers of a thread.
constexpr int kBlocks = 4;
// Loads that a thread has in flight.
constexpr int kVecUnroll = 4;    // vectors
constexpr int kValueUnroll = 8;  // single values
constexpr int kWideUnroll = 4;  // single values of 8 bytes and more, or of a type known at run time
constexpr int kSpread = 4;      // columns of a thread that reads single values
constexpr int kShiftedValues = 8;     // of a vector, at most: 16 sums in int64 fill the registers
constexpr int kTileOutputs = 4;       // outputs of a tile that a thread reduces together
constexpr int64_t kSectorBytes = 32;  // of memory, which is read in sectors
constexpr int64_t kBankBytes = 4;     // of shared memory
constexpr int kMostInBank = 4;        // path kTile: values of a warp in one bank (an estimate)
constexpr int kFinishThreads = 512;   // threads per block of finish_kernel, at most

// Measurements on an H200: microseconds in f32 / bf16. The L2 cache is flushed. In CUDA graphs,
// inputs rotate instead.
//
// once_below (streaming loads):
//   Rows of (32768,1024): 42.9 / 26.8 without, 37.4 / 22.7 with.
//   2^28 values: 251 / 136 without, 266 / 145 with. Streaming is slower for inputs much larger than
//   the L2 cache, and as fast at 268 MB.
// row_blocks, for 4, 8 and 32 blocks per SM:
//   2^25 values: 41.8 / 24.6, 41.5 / 24.6, 41.0 / 24.6.
//   (128,262144) over dim 1: 43.7 / 25.4, 42.0 / 24.9, 40.1 / 24.5.
//   (64,256,56,56) over dims 0, 2 and 3: 60.9 / 35.1, 61.1 / 36.5, 62.3 / 37.7.
//   With 16, random problems of one row per output are as fast as with 32 (limits.jsonl).
// Columns are split over kBlocks blocks per SM. For 2, 3 and 4 blocks:
//   (32768,1024) over dim 0: 41.2 / 25.2, 40.2 / 24.5, 41.2 / 24.5.
//   (16,4096,1024) over dim 1: 77.1 / 43.4, 75.4 / 43.0, 75.2 / 42.3.
// wide, for blocks of 32 and 64 vectors:
//   Columns of 32 to 128 values: 41.9 / 24.7 to 39.8 / 23.7 with 32, 41.0 / 24.1 to 39.3 / 22.8
//   with 64.
//   Longer columns in bf16: up to 25.8 with 64, 23.1 with 32.
// short_row_vecs:
//   (2^20,32): 41 / 27 with several rows per thread, 60 / 59 with one row at a time.
// unsplit_groups, in f32 with cold inputs:
//   2^14 values (4 groups) in one block: 3.6. 2^17 values in 32 blocks and two launches: 3.4.
struct Tuning {
  int row_blocks = 16;  // per SM, if rows are split
  // Rows get more threads each while an SM has fewer threads than this.
  int row_threads = 64;
  // An output is not split if it has at most so many groups. A group is what a block has in flight.
  int64_t unsplit_groups = 2;
  int64_t short_row_vecs = 8;  // vectors of a row on path kShortRows, at most
  // Bytes of a piece on path kTile, at most, if it is a row. Pieces of columns may have twice as
  // many. Windows of several rows fill a tile.
  int64_t tile_row_bytes = 1024;
  int64_t tile_bytes = 32 << 10;  // bytes of a tile in shared memory, about
  // Tiles are smaller, down to tile_least_bytes, if an SM would have fewer blocks than this. A
  // block first copies and then computes, so blocks that start later keep memory busy meanwhile. An
  // SM holds at least kBlocks, which have 24 KB in flight. Neither is swept.
  int64_t tile_blocks = 24;
  int64_t tile_least_bytes = 6 << 10;
  int64_t wide = 32;  // threads side by side in a block of columns; twice for single values
  // The limits below are from benchmarks/results/nvidia-h200/reduce-columns.jsonl.
  //
  // Columns are shifted from so many units on, times the offsets at which rows begin:
  // (512,64,2049) of f16 over dim 1 takes 50 us shifted and 59 spread, (992,33,2049) 73 and 60.
  int64_t shifted_column = 8;
  // Single values: a thread reads a column alone if an SM has so many threads for each group.
  // (2048,16,2049) of f16 over dim 1 takes 58 us so, and 86 with several threads for a column.
  int64_t alone_threads = 128;
  int64_t once_below = 256 << 20;  // inputs of fewer bytes are read with streaming loads
  // Outputs, blocks and units of a launch. Tests lower it, so that small problems are split.
  int64_t most_in_launch = kMaxIndex32;

  GPUOPT_DESCRIBE(row_blocks, row_threads, unsplit_groups, short_row_vecs, tile_row_bytes,
                  tile_bytes, tile_blocks, tile_least_bytes, wide, shifted_column, alone_threads,
                  once_below, most_in_launch)
};

}  // namespace gpuopt::reduce
