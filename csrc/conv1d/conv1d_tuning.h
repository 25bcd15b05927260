// The numbers that a convolution's plan and kernels are built on, and the measurements that decided
// them.
#pragma once

#include <cstdint>

namespace gpuopt::conv1d {

constexpr int kThreads = 256;
constexpr int kChunkThreads = 128;
constexpr int kWeightWarps = 8;       // of a block at most, in weight gradients in chunks
constexpr int kMmaOutputs = 128;      // of one product of matrices
constexpr int kMmaParts = 2;          // products at once
constexpr int kFewTaps = 10;          // that reach, behind up to 7 values of a pack, over 24 places
constexpr int kDirectQuad = 4;        // values of a lane's load
constexpr int kDirectTaps = 22;       // that reach, behind up to 3 values, over 32 places,
constexpr int kDirectNear = 9;        // and with these over 16
constexpr int kDirectRest = 32;       // outputs behind a row's last tile, at most
constexpr int kFewThreads = 128;      // of a block, of few values,
constexpr int kMostFewThreads = 256;  // or of many blocks, each of which takes time to start
constexpr int kFewProducts = 24;      // of a lane at most, of few values
constexpr int kFanWarps = 8;          // of a block of input gradients from many channels
constexpr int kFanTapBytes = 40 << 10;  // of shared memory, for their taps
constexpr int kFanMostStep =
    64;  // of input gradients from many channels, whose first taps are in shared memory
constexpr int kFanReach =
    1 << 29;                     // places of an input that weight gradients of many channels count
constexpr int kGemmPlaces = 32;  // of a warp, in products of matrices that gather,
constexpr int kGemmRows = 4;     // and times 16 channels, at most
constexpr int kHalfPhaseOutputs = 216 << 10;  // from which half types are soon cut into phases
constexpr int kStridedOutputs = 128;          // of a tile of a warp, of other steps than 1
constexpr int kGatherPlaces = 4;  // of a lane at once, in input gradients of other steps than 1
constexpr int kPartPlaces = 128;  // of a row at a time, in weight gradients by packs of channels
constexpr int kDilatedTaps = 8;   // of a block, in weight gradients with dilation

// Measured on an H200 (microseconds, f32 / bf16, repeated calls without flushing the L2):
//   few_places: depthwise (4,497,71) with 8 taps, step 5, dilation 16, f32, 3.7 with one place a
//     lane, 5.1 with four; (1,843,256) with 7 taps, step 3, dilation 8 3.1 and 5.0; gradients of
//     (15,76,96) with 6 taps, step 3, f16, 8.3 and 12.2.
//   few_outputs, few_*products: 240 random problems of 800 to 1.5 million outputs and 250 depthwise
//     ones, inputs rotated. Time over that of the path before, or ATen where that was faster: rows
//     and values 0.97 at most up to 2.5 million products, 1.12 with 2.6, (1,20000,12) with 21 taps,
//     f16, 0.7 with 5, 1.09 with 8; strided chunks 0.67 with 2.5 million; what is ATen's 0.5 to 0.9
//     up to 5.4 million, 1.18 with 7; channels-last 0.52 with 8; chunks 0.6 to 1.1 up to 1.8
//     million, 1.75 with 3; of few taps, f16, 65400 outputs: 3 taps 0.7, 262000 outputs 1.1 to
//     1.25; direct tiles, f16, 65400 outputs: 3 taps 0.95, 7 taps 1.07, 15 taps 1.39; 10400
//     outputs, 15 taps 1.27. Chunks go through input channels one after another: 4 channels, 1.8
//     million products 0.47; 2 channels, 3.1 million 1.75. With more than 300000 outputs 1.3 to
//     2.7.
//   direct_*: depthwise f16, inputs rotated; one tile a warp (in blocks of 128 or 256), two, and
//     other chunks (of few taps, or on tensor cores). 64 million outputs: 3 taps, rows of 256 72.0,
//     -, 109; of 272 100, 93.8, 128; of 512 77.8, 62.4, 70.1; of 540 110, 97.4, 87.9; of 600 88.8,
//     86.7, 72.8; of 700 78.6, 76.5, 79.2; of 800 86.9, 69.9, 68.1; of 2048 72.1, 63.2, 68.1. 15
//     taps: of 600 105, 107, 91.1; of 800 117, 78.6, 78.9; of 900 93.7, 72.6, 84.9; of 1030 97.5,
//     86.9, 72.7; of 1300 95.6, 73.7, 78.6; of 2048 77.2, 68.3, 68.7; of 2051 88.0, 74.8, 74.1. One
//     million: 3 taps, of 540 3.3, 3.7, 4.2; 15 taps, of 1030 3.4, 4.5, 4.8. direct_warps: 3 taps,
//     rows of 600, 38 tiles a multiprocessor 3.2 with one and 3.9 as other chunks, 76 4.7 and 4.4.
//     direct_from: rows of 96, 39 tiles a multiprocessor (in blocks of 64), 3 taps 4.0 and 3.2 by
//     rows, 15 taps 4.2 and 4.2, 21 taps 4.2 and 5.0. direct_row: 32 million outputs in rows of one
//     tile, 0.29 ns each in blocks of 256 (0.31 of 128, 0.61 of 64), and by rows: of 192 48 and 48
//     with 3 taps, 65 with 9, 84 with 21; of 144 64 and 48, 54 with 7, 72 with 9, 93; of 128 72 and
//     47, 65 with 9, 82.
//   few_blocks: depthwise f16, blocks of 64, 128 and 256: 3 taps, 30000 outputs 1.4, 1.7 and 2.0;
//     120000 2.7, 2.0 and 2.1; 250000 5.1, 3.2 and 2.5; 31 taps, 200000 8.0, 5.9 and 6.0.
//   chunk_outputs: depthwise (8192,64,64) with 3 taps 77 / 45 by rows and 264 / 292 in chunks;
//     (1024,256,200) with 31 taps 236 / 188 by rows and 200 / 155 in chunks.
//   chunk_tiles: (1,1,2^24) f32, with 5 taps 38.6 with 1, 34.5 with 2, 34.9 with 3 and 35.8 with 4;
//     with 31 taps 43.3 with 2, 41.2 with 3 and 41.4 with 8.
//   mma_tiles: depthwise (8,4096,2048) with 4 taps and padding 3, bf16, 75.6 with 4, 72.2 with 6,
//     72.0 with 8 and 73.4 with 9.
//   few_tiles: of values not in the L2, (1,1,2^24) with 5 taps 23.6 with 3, 23.8 with 4, 24.0 with
//     6 and 24.3 with 8, depthwise (32,768,1024) with 7 taps 33.8, 32.1, 32.2 and 32.1, bf16.
//   fan_blocks: of values not in the L2, (16,1,80000) to 512 channels with 10 taps, step 5, 152.6
//     with 24, 145.9 with 48 and 157.2 with 96, (16,1,120000) to 32 with 7 taps 71.1, 69.7 and
//     70.1, f32.
//   fan_turn_channels: the same in bf16, blocks of 32 channels, 78.3 and 39.6 with three turns,
//     82.1 and 39.8 with five, 84.5 and 42.2 with six.
//   chunk_warps: convolve of 2^20 values with 255 taps 21.6 / 9.6 with 4, 24.3 / 11.0 with 8, 19.0
//     / 9.6 with 16 and 18.9 / 9.5 with 32.
//   gather_channels: gradients of (5,44,3099) from 51 channels a group, 3 taps, step 3, f32, 35 by
//     value and 116 in chunks; of (6,32,174040) from 8, 4 taps, step 3, bf16, 277 and 398; of
//     (6,8,48967) from 4, 16 taps, step 2, bf16, 48 and 42.
//   weight_bytes: depthwise (32,768,1024) with 7 taps 71 / 43 with 1 KB, 56 / 35 with 2 KB.
//   row_threads: depthwise (8,4096,2048) with 4 taps by rows 310 / 168 in blocks of 256, 233 / 131
//     of 128.
//   wide_outputs: depthwise (8192,64,64) with 3 taps 77 / 45 by wide lanes and 115 / 67 by others.
// Measured on an H100, whose multiprocessors are the same: f32 in microseconds, inputs rotated, as
// it was made before and cut into phases:
//   polyphase_taps: (1,1,2^20), 128 taps 9.5 and 10.6, 192 16.7 and 12.5, 255 20.4 and 18.6; 2^24,
//     128 108 and 109, 192 157 and 153, 255 207 and 195. Of two input channels a group (16,16,8192)
//     to 8, 7 taps 6.3 and 7.0, 12 9.7 and 7.4; of eight (16,64,8192) to 8, 3 taps 25.1 and 22.8.
//     Of three output channels (16,8,8192) to 24, 12 taps 13.1 and 9.9; of two and two (16,16,8192)
//     to 16, 3 taps 11.2 and 9.2, 31 22.8 and 13.3.
//   polyphase_outputs: depthwise (16,512,144) with 7 taps 6.0 and 6.5, 160 6.8 and 6.7, 200 7.8 and
//     7.3; with 31 taps 200 12.4 and 8.7. Strided (8,512,300), step 4, 12 taps 7.3 and 8.5, 16 8.9
//     and 8.6; step 2, (4,512,150), 12 taps 6.7 and 4.5.
//   Dilation: depthwise (4,512,2048), dilation 2, 7 taps 19.6 and 20.0, 9 21.8 and 21.1, 15 30.2
//     and 21.3, 31 50.3 and 24.7; dilation 16, 15 taps 29.5 and 20.4; dilation 31, 15 taps 30.4 and
//     43, 31 55.6 and 48.
//   Steps: depthwise (1,64,65536), step 2, 8 taps 13.8 and 11.1, 24 21.3 and 11.8; step 4, 8 taps
//     12.5 and 10.3, 44 33 and 12.1; step 8, 12 taps 13.4 and 12.5, 44 34 and 14; step 3, 16 taps
//     11.4 and 11.3, 44 20.3 and 13.0; step 5, 24 taps 12.0 and 11.7, 44 17.3 and 13.3; step 7, 44
//     taps 12.0 and 14.4; bf16, step 2, 16 taps 14.7 and 11.7 but (8,512,1500) 18.7 and 20.9, 24
//     18.1 and 12.3. Of half types (8,64,8192), step 2, 12 taps 11.2 and 10.9, 16 13.3 and 11.1;
//     step 3, 15 taps 14.3 and 10.1; step 4, 18 taps 15.9 and 10.5; step 5, 21 taps 14.3 and 11.2;
//     step 8, 30 taps (ATen) 14.3 and 13.3; kHalfPhaseOutputs: see conv1d_pays.h.
//   polyphase_few_*: depthwise (1,64,8192), step 2, 12 taps 3.4 and 4.4; (17,4,8896), step 5, 49
//     taps 5.4 and 4.9.
//   polyphase_far, polyphase_warps: one segment and two; dilation 5, (4,512,300), 15 taps 5.1 and
//     5.6, dilation 6 6.7 and 6.2, 16 11.0 and 7.8; (16,24,8192) to 16 channels, 9 taps, 64 warps a
//     multiprocessor 12.6 and 13.1, (16,48,8192) to 16 26.9 and 25.9; (1,1,2^24), 255 taps 216 and
//     195.
//   few_phases_products: (4,512,150), step 2, 24 taps 4.9 and 3.6 by few values (28 x 1024 products
//     a multiprocessor); (1,64,65536), step 16, 24 taps (47 x 1024) 17 and 21. Dilated chunks as
//     few values, up to twice few_tile_products: (1,3,40000) to 1 channel, 24 taps, dilation 8 (22
//     x 1024) 8.1 and 5.2; not of half types.
// Also on an H100, input and weight gradients of many output channels:
//   Blocks that go through tiles, instead of one for each: (16,1,80000) to 512 channels, 10 taps,
//     step 5, bf16 input 200 and 137, f32 308 and 222.
//   fan_gradient_channels: (1,8,1734267) to 4, 18 taps, step 8, bf16 by value 72 and 52, by these
//     157 and 41; from 5 on, see conv1d_pays.h.
//   fan_matrix_channels: (6,2,860737) to 16, of which 4 are aligned alike, 1 tap, step 3, bf16
//     input with matrices 164, by lanes 67; weights of 4 aligned alike 134, of all 16, shifted, 71.
//   kFanTapBytes: (46,126,303) to 5565, 21 groups, 7 taps, step 5, whose taps don't fit with 8
//     warps that share places, bf16 input 330 and, with 4 in 40 KB, input and weight 200.
// And forwards of half types, few values and products of matrices that gather:
//   few_gemm_products: (4,16,500) to 64 channels, 4 groups, 11 taps, step 3 (14 x 1024 products a
//     multiprocessor) 3.69 and 3.67; (2,12,1000) to 48, 3 groups, 11 taps, step 2 (16 x 1024) 3.70
//     and 3.24; (1,25,3000) to 45, 5 groups, 20 taps, step 3 (34 x 1024) 8.3 and 4.2; (4,8,300) to
//     32, 4 groups, 16 taps, step 4 1.7 and 2.9. Since all of its warps copy, of 22 random problems
//     of 2 x 1024 to 18 x 1024: (1,52,364) to 20, 4 groups, 37 taps, step 2 (12 x 1024) 4.7 and
//     7.2, (1,72,639) to 24, 8 groups, 45 taps, step 3, dilation 2 (13 x 1024) 5.1 and 6.8,
//     (4,6,241) to 38, 2 groups, 26 taps, step 3, dilation 2 (6 x 1024) 3.3 and 3.0.
//   gemm_channels: of 9 to 16 input channels 1.6 to 4.5 times ATen's speed (17 problems), of 32 0.8
//     to 2.5.
// Not swept: kGemmPlaces, kGemmRows, fan_split_channels, kFanMostStep, polyphase_channels, the
// shared memory of a block of phases and of all its channels at once, mma_dilation, strided_tiles,
// gather_tiles, gather_step, fan_channels, weight_blocks, weight_units, and the constants above but
// for kChunkThreads, which is row_threads'; most_channels is the limit that the room was built for.
struct Tuning {
  int row_threads = 128;      // of a block of rows_kernel, at most
  int64_t mma_dilation = 16;  // up to which tensor cores take taps: the gaps cost as much
  int64_t few_places = 2048;  // of a multiprocessor, up to which a lane has one, in gathers
  int64_t few_outputs =
      2048;  // of a multiprocessor, up to which all may be under way at once, with
  int64_t few_products =
      48 << 10;  // so many products of a multiprocessor at most; of channels-last
  int64_t few_last_products = 128 << 10;  // depthwise ones that a library would take;
  int64_t few_tile_products = 8 << 10;  // where they would be chunks of step 1, the fan or columns,
  int64_t few_taps_products = 4 << 10;  // chunks of few taps of half types
  int64_t few_direct_products = 512;    // and direct tiles;
  int64_t few_phases_products = 40 << 10;  // or cut into several phases, or
  int64_t few_gemm_products = 14 << 10;    // products of matrices that gather
  int64_t few_blocks = 8;                  // of a multiprocessor, from which these are larger
  int64_t few_weight_places = kThreads;    // of weight gradients, up to which threads have one
  int64_t chunk_outputs = 256;             // of a row, from which warps take it in chunks
  int64_t chunk_tiles = 3;                 // of a warp, at most,
  int64_t mma_tiles = 6;                   // and on tensor cores,
  int64_t few_tiles = 4;                   // with few taps
  int64_t strided_tiles = 4;               // and of other steps than 1
  int64_t polyphase_taps = 192;      // of long rows of one channel, from which they are phases
  int64_t polyphase_channels = 8;    // of the input, of a group, up to which this was measured
  int64_t polyphase_outputs = 150;   // of a row that is cut, or half as many with a step
  int64_t polyphase_few_warps = 16;  // of a multiprocessor, below which steps ask for
  int64_t polyphase_few_taps = 24;   // so many taps
  int64_t polyphase_far = 6;         // dilation, or
  int64_t polyphase_warps = 64;      // of a multiprocessor, from which a lane has two segments
  int64_t gather_tiles = 8;          // and in their input gradients,
  int64_t gather_step = 256;         // up to this step
  int64_t gather_channels = 4;       // and from so many channels of a group
  int64_t direct_filled = 65;        // hundredths of two tiles a warp that a row has to fill,
  int64_t direct_far_filled = 84;    // of taps beyond kDirectNear;
  int64_t direct_warps = 40;         // of a multiprocessor, up to which each has a tile otherwise;
  int64_t direct_row = 192;          // outputs of a row, or
  int64_t direct_row_less = 48;      // less
  int64_t direct_taps = 9;           // with so many taps, or any with
  int64_t direct_from = 12;          // so many and few tiles
  int64_t chunk_warps = 16;          // of a multiprocessor, from which a warp takes several tiles
  int64_t wide_outputs = 32 << 10;   // of a multiprocessor, from which rows are cut into wide lanes
  int64_t most_channels = 8;         // of a group that has a kernel here
  int64_t fan_channels = 8;          // aligned alike, from which kernels go through them
  int64_t fan_blocks = 48;  // of a multiprocessor, for which channels are shared, to 16 a block
  int64_t fan_turn_channels = 96;        // of a block on tensor cores, times its turns
  int64_t fan_gradient_channels = 5;     // of a group, from which gradients go through them
  int64_t fan_gradient_first = 1 << 30;  // that others would take, too
  int64_t fan_matrix_channels =
      8;  // aligned alike, from which input gradients are products of matrices
  int64_t fan_split_channels = 16;  // of a warp at least, where several share places
  int64_t gemm_channels = 16;       // of the input, of a group, up to which this was measured
  int64_t weight_bytes = 2 << 10;   // of a chunk of the gradient, in weight gradients
  int weight_blocks = 6;            // of a multiprocessor, in a launch that splits weight gradients
  int weight_units = 4;             // of a lane at least, where they are split
};

}  // namespace gpuopt::conv1d
