// What a plan of index_add may be given: limits, and times that choose between paths. Times are in
// us on an H200. Plain host C++.
#pragma once

#include <cstdint>

#include "common/describe.h"
#include "index_sort/index_sort.h"

namespace gpuopt::index_add {

using namespace index_sort;

struct Tuning : SortTuning {
  // Most values of an entry in a launch, and most values of a launch.
  int64_t launch_size = int64_t{1} << 30;
  int64_t launch_values = int64_t{1} << 37;

  // The bins and lines paths require at least this many values.
  int64_t min_bin_values = 1 << 15;
  // Smaller problems take bins, too, where additions to one line of self would queue up for longer
  // than this. Bins take two launches, 4 to 5. Not swept. By additions, (253) += (20589) in bf16
  // takes 14.4, and (17,7) += (6199,7) 22.
  double least_queue = 6;
  // With fewer entries, tiles take longer than additions that queue up: (1200,16) += (2679,16) in
  // f32 takes 4.4, ATen's additions 3.0. Additions to one row take 2.4 ns each. The limit is higher
  // for rows of up to 8 vectors: 2048 additions to one row at most, where a warp has several rows.
  // So it is with tiles of a few thousand entries: (6832,8) += (10134,8), sorted, takes 4.5 by
  // tiles.
  int64_t min_tile_entries = 4096;
  // Blocks may sum units of less than 16 bytes from this number of entries on. With fewer,
  // additions that queue up take 2 at most. Not swept. Zipf-distributed values with each added by
  // itself, and with sums of blocks: (19428) += (40430) in f32 17.2 and 3.8, (2^20) += (944692) in
  // bf16 244 and 42.
  int64_t min_block_sums = 4096;
  int64_t min_hot_values = 1 << 20;  // to look for frequent bins; not swept

  // A long segment has at most this many parts, because its last block adds the sums of all parts
  // alone.
  int64_t max_parts = 1024;

  // Whether sorting is faster than tiles. The memory time of either way is compared, expressed in
  // bytes. The sort and the launches after it take as long as sort_traffic bytes, and
  // sort_entry_traffic bytes per entry: 28, and 30 for 2^20 entries. Additions take as long as
  // added_traffic times the source's bytes. Skewed indices take a little longer, by tiles and
  // sorted. Uniform indices, by tiles and sorted:
  //   (65536,256) += (131072,256) bf16     54 and  64
  //   (169343,128) += (2^20,128) bf16     186 and 142
  //   (32768,128) += (262144,128) f32      76 and  79
  //   (65536,128) += (262144,128) f32      90 and  84
  //   (16384,512) += (65536,512) f32       91 and  75
  //   (65536,1024) += (16384,1024) f32     62 and  72
  double sort_traffic = 118e6;
  double sort_entry_traffic = 120;
  double added_traffic = 3;

  // Limits for rows without tiles. With fewer bytes of source, the sort takes longer than additions
  // that queue up. With shorter rows, it takes longer than frequent bins in shared memory.
  double sort_source_bytes = 24 << 20;
  int64_t sort_row_bytes = 128;

  GPUOPT_DESCRIBE(position_bits, max_tile_entries, launch_size, launch_values, min_bin_values,
                  least_queue, min_tile_entries, min_block_sums, min_hot_values, max_parts,
                  sort_traffic, sort_entry_traffic, added_traffic, sort_source_bytes,
                  sort_row_bytes)
};

}  // namespace gpuopt::index_add
