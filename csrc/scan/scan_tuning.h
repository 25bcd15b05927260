// The constants of scans.
#pragma once

#include <cstdint>

#include "common/describe.h"
#include "common/index.h"

namespace gpuopt::scan {

constexpr int kMaxWarps = 8;              // warps of a block, at most
constexpr int kThreads = 32 * kMaxWarps;  // threads of a block, at most
constexpr int kVecUnits = 4;              // vectors that a thread has in flight
constexpr int kSingleUnits = 8;           // single values that a thread has in flight
constexpr int kColumnRows = 8;            // rows of a column that a thread has in a tile

// Tiles of columns that a block copies together: the bytes of a thread, and the most of a thread
// that has whole columns, the fewest bytes of a row of a tile (two sectors), the side of a tile
// that is transposed, and the fewest columns. If there are few columns, a thread has so many rows
// at most: (248, 84) of bf16 took 7.6 us with 84 rows in each of 248 threads (H200).
constexpr int64_t kTileBytes = 64;
constexpr int64_t kWholeBytes = 192;
constexpr int kTileRowBytes = 64;
constexpr int kTileSide = 16;
constexpr int kLeastColumns = 4;
constexpr int kFewColumnsRows = 16;

// A thread that scans a row alone has 4 values in flight, or up to 16 if rows are longer than this.
// A kernel of the same loop took with 4 and 16, in us (H200, f16 but the last, scan-paths.jsonl):
// (1420, 4, 3259) 32, 91; (17, 2799577) 76, 105; (1754, 29, 127) 16.9, 16.3; (2048, 50, 333) 65.8,
// 59.5; (192, 308294) 137, 106; f32 (144, 2, 64133) 51, 166.
constexpr int kFewAlone = 28;
constexpr int kAloneUnits = 4;
constexpr int kMostAloneUnits = 16;

// A row of at most 8 tiles is scanned by one cluster of blocks, which needs no records, if all
// blocks run at once. On an H100, in us, with and without (2026-11-26): f32, 2^14 3.26, 3.80;
// 2^15 3.38, 4.01; (16, 16384) 4.39, 5.45. With more blocks, look-back is faster: (500,
// 12288) 26.1, 24.4. So it is with 8 larger tiles instead of 16 or 32: 2^17 6.40, 4.95.
constexpr int kClusterTiles = 8;
constexpr int kClusterBlocks = 528;

// Look-back (scan_look_back.cuh): 16 tiles form a run, 16 runs form a group.
constexpr uint32_t kRun = 16;
constexpr uint32_t kGroup = kRun * kRun;

// Chosen from times on an H100 (torch 2.11, 2026-11-26, CUDA events, L2 cold), in us:
//   f32 unless noted                      most_tile_times 2, 3, 4
//   2^24                                     63.5, 60.9, 62.1
//   (32768, 1024) dim 0                     130.9, 118.3, 113.7
//   (262144, 128) dim 0                     160.1, 137.8, 126.2
//   recurrence, (32768, 1024) dim 0         255.7, 211.8, 189.7
// Shorter rows that no vectors fit are columns, if they have so many values in all.
constexpr int64_t kShortRow = 512, kManyShortValues = 1 << 22;

struct Tuning {
  // Rows are split over blocks if there are fewer rows than this, two for each of 132 SMs. On an
  // H200, in us, split and not (scan-paths.jsonl): (527, 8300) 17.5, 11.4; (300, 40000) 39.4, 34.5;
  // (140, 17000) 9.9, 12.6.
  //
  // Rows that begin elsewhere in a vector than their results are split value by value. If there are
  // more, they are read in vectors. Many shorter ones are columns that lie across memory. On an
  // H200, in us, value by value, in vectors, and as columns (scan-paths.jsonl):
  //                      f16                f32
  //   (17312, 5100)      329, 147, 233      301, 216, 312
  //   (4096, 1000)        20,  10,  19       19,  17,  25
  //   (60000, 300)       100, 124,  49       89,  92,  67
  //   (339, 6277)       19.0, 7.4          18.3, 8.7
  //   (500, 1000)        4.1, 6.2           3.8, 4.4
  //   (64, 30000)       18.5, 15.9         18.2, 21.6
  int64_t split_rows_below = 264;
  // Columns are split over blocks if they fill fewer blocks than this.
  int64_t split_columns_below = 200;
  // The tiles of split rows and columns grow as long as this many tiles are left. On an H200, in
  // us, with 792 and 264 (scan-paths.jsonl): vectors of 2354837 14.7, 12.0; 6000000 29.2, 23.8;
  // 12000000 38.7, 39.8. (20000, 200) dim 0 33.6, 22.1. A recurrence of 2354837 38.4, 27.6.
  int64_t many_tiles = 264;
  // They grow to at most this many times their size.
  int64_t most_tile_times = 4;
  // Columns are narrowed to get more blocks: to this many values, or to half as many vectors. On an
  // H200, in us, with 8, 4 and 2 vectors (scan-paths.jsonl): f32, (4096, 512) dim 0 19.3, 16.6,
  // 15.7; (8192, 4096) 83, 84, 121. With 4 and 2: bf16, (32768, 1024) dim 0 62.5, 68.9.
  int narrow_values = 8;
  int64_t wide_blocks = 528;
  // Threads scan columns that no vectors fit alone if there are so many for each row, up to a
  // number of rows. On an H200, in us, otherwise and alone
  // (benchmarks/results/nvidia-h200/scan-paths.jsonl):
  //                     f16              f32                           bf16
  //   (64, 20001)       4.7,   6.1                   (270, 16, 63)     4.6,  3.6
  //   (64, 50001)      11.3,   9.2                   (8, 18, 1835)     4.9,  4.0
  //   (192, 308294)     258,   106    222, 193       (5, 496, 2065)   34.2, 34.3
  //   (2048, 50, 333)  95.3,  54.5    107,  99       (512, 50001)      125,   46
  int64_t alone_columns = 512;
  int64_t alone_rows = 64;
  // Loads of a record, at most, before a block computes what it waits for. A load takes about 0.7
  // us.
  uint64_t patience = 1 << 17;
  // Rows, columns and blocks of a launch, at most.
  int64_t launch_limit = kMaxIndex32;

  GPUOPT_DESCRIBE(split_rows_below, split_columns_below, many_tiles, most_tile_times, narrow_values,
                  wide_blocks, alone_columns, alone_rows, patience, launch_limit)
};

}  // namespace gpuopt::scan
