// The numbers that a convolution's plan and kernels are built on, and the measurements that decided them.
#pragma once

#include <cstdint>

namespace gpuopt::conv1d {

constexpr int kThreads = 256;
constexpr int kDilatedTaps = 8;  // of a block, in weight gradients with dilation

// Measured on an H200 (microseconds, f32 / bf16, repeated calls without flushing the L2):
//   row_threads: depthwise (8,4096,2048) with 4 taps 310 / 168 in blocks of 256, 233 / 131 of 128; (1,1,2^24) with 5 taps
//     71 / 34 and 57 / 32.
//   Outputs of a lane (row_outputs), of what is one step of taps: (1,1,2^24) with 5 taps 43 with 8 of f32 and 59 with 16;
//     27 with 16 of bf16 and 33 with 32. With more taps: 2^20 values with 255 taps 28 with 8 of f32 and 23 with 16 in blocks
//     of 256.
// Not swept: kThreads, kDilatedTaps, wide_outputs, weight_blocks, weight_units; most_channels is the limit that the room
// was built for.
struct Tuning {
  int row_threads = 128;            // of a block of rows_kernel, at most
  int64_t wide_outputs = 32 << 10;  // of a multiprocessor, from which rows are cut into wide lanes
  int64_t most_channels = 8;        // of a group that has a kernel here
  int weight_blocks = 6;            // of a multiprocessor, in a launch that splits weight gradients
  int weight_units = 4;             // of a lane at least, where they are split
};

}  // namespace gpuopt::conv1d
