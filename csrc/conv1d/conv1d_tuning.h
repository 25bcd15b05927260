// The numbers that a convolution's plan and kernels are built on, and the measurements that decided them.
#pragma once

#include <cstdint>

namespace gpuopt::conv1d {

constexpr int kThreads = 256;
constexpr int kChunkThreads = 128;
constexpr int kWeightWarps = 8;  // of a block at most, in weight gradients in chunks
constexpr int kMmaOutputs = 128;  // of one product of matrices
constexpr int kMmaParts = 2;      // products at once
constexpr int kDilatedTaps = 8;  // of a block, in weight gradients with dilation

// Measured on an H200 (microseconds, f32 / bf16, repeated calls without flushing the L2):
//   row_threads: depthwise (8,4096,2048) with 4 taps 310 / 168 in blocks of 256, 233 / 131 of 128; (1,1,2^24) with 5 taps
//     71 / 34 and 57 / 32.
//   row_outputs, of what is one step of taps: (1,1,2^24) with 5 taps 43 with 8 of f32 and 59 with 16; 27 with 16 of bf16 and
//     33 with 32 (both before tensor cores took bf16). With more taps: 2^20 values with 255 taps 28 with 8 of f32 and 23 with
//     16, in blocks of 256.
//   kMmaTiles: (1,1,2^24) with 5 taps, bf16, 21 with 8 and 42 with 4; depthwise (8,4096,2048) with 4 taps 97 and 181, where
//     the instructions around each tile became fewer as well (by rows: 104).
//   mma_outputs: depthwise (8192,64,64) with 3 taps, bf16, 414 on tensor cores, which make 128 outputs for 64, and 47 by rows.
// Not swept: mma_dilation, kMmaThreads, kThreads, kDilatedTaps, wide_outputs, weight_blocks, weight_units; most_channels is
// the limit that the room was built for.
struct Tuning {
  int row_threads = 128;            // of a block of rows_kernel, at most
  int64_t mma_dilation = 16;        // up to which tensor cores take taps: the gaps cost as much
  int64_t chunk_outputs = 256;      // of a row, from which warps take it in chunks
  int64_t chunk_tiles = 3;          // of a warp, at most,
  int64_t mma_tiles = 6;            // and on tensor cores
  int64_t chunk_warps = 16;         // of a multiprocessor, from which a warp takes several tiles
  int64_t wide_outputs = 32 << 10;  // of a multiprocessor, from which rows are cut into wide lanes
  int64_t most_channels = 8;        // of a group that has a kernel here
  int64_t fan_channels = 8;         // that are aligned alike, from which kernels go through output channels
  int64_t weight_bytes = 2 << 10;   // of the gradient that a warp takes at a time, where weight gradients are made in chunks
  int weight_blocks = 6;            // of a multiprocessor, in a launch that splits weight gradients
  int weight_units = 4;             // of a lane at least, where they are split
};

}  // namespace gpuopt::conv1d
