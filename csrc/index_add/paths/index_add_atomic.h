// The atomic path adds values to memory by atomic operations, in one of three forms: each value by
// itself, tiles that sum rows of one bin first, or frequent bins kept apart. This file says what
// each form supports, and plans it. Times are in us on an H200.
#pragma once

#include "index_add/index_add_problem.h"

namespace gpuopt::index_add {

constexpr int kAtomicThreads = 256;
constexpr int kAtomicUnroll = 4;

// ---------------------------------------------------------------- tiles
// Rows of a tile that name the same bin are summed from this number on. (131072,64) += (2^20,64) in
// f16 takes, with two, three and four: 80.4, 79.5, 79.7 for uniform indices, 93, 104, 113 for Zipf
// 1.1.
constexpr uint32_t kAggregateFrom = 3;
// Most units in a row of a tile. (65536,1024) += (16384,1024) in f32 takes, with 8, 16 and all:
// 66.4, 62.3, 61.9 for uniform indices, 50, 48, 68 for Zipf 1.1.
constexpr int64_t kTileUnits = 16;
// Least units in a row. By tiles and with frequent bins kept apart, in f32 with uniform indices:
// rows of one vector, (65536,4) += (2^21,4), take 51 and 40. Rows of two vectors take 35 and 33,
// and 40 and 54 for Zipf 1.1.
constexpr int64_t kMinTileUnits = 2;
constexpr int64_t kMinTileEntries = 1024;  // not swept
// A block whose full tile has at most this many rows has as many threads, and loads the tile in two
// batches. Its first sums start earlier, and more blocks alternate on an SM. In one batch of 256
// threads and in two of 128:
//   (131072,64) += (2^20,64) f16    uniform 78.6 and 77.7, Zipf 1.1 92 and 93
//   (65536,64) += (2^18,64) bf16    uniform 28.9 and 27.4, Zipf 1.1 36.2 and 37.0
//   (65536,16) += (2^20,16) f32     45.5 and 47.4 (tiles of more rows)
constexpr int kFewRowsThreads = 128;

// ---------------------------------------------------------------- frequent bins apart
// Not swept: the constants of this section.
constexpr int kHotSamples = 1024;
constexpr int kHotFrom = 4;  // samples that make a bin frequent
constexpr int kHotSlotBits = 11;
constexpr int kHotSlots = 1 << kHotSlotBits;
constexpr int kHotCopies = 8;
constexpr int kHotSharedBytes = 24 << 10;
constexpr int kMaxHotBins = 256;
constexpr int kMaxHotRow = 64;
constexpr int kHotBlocksPerSm = 3;
constexpr int64_t kMinHotValues = 1 << 20;

// In the plans below, a unit is one access of a thread, of `values` values. A row has `units`
// units.
struct AtomicPlan {
  int values = 1;
  int64_t units = 1;
  int64_t thread_units = 1;  // units that a thread has in flight
};

struct TilesPlan {
  int values = 1;
  int64_t units = 1;
  int64_t tile_rows = 0;
  int64_t tile_units = 0;  // in a row of the tile
  int tile_threads = 0;    // of a block
};

struct HotPlan {
  int values = 1;
  int64_t units = 1;
  int64_t hot_bins = 0;  // limit on frequent bins with sums in shared memory
};

// log2 of the slots in the hash table of a tile. At most half of the slots are used.
inline int tile_slot_bits(int64_t rows) { return bits_for(rows) + 1; }

// Shared memory of TileTables.
inline int64_t tile_shared_bytes(int64_t rows) {
  return (int64_t{1} << tile_slot_bits(rows)) * 8 + rows * 4 + rows / kAggregateFrom * 8 + rows * 6;
}

// Whether tiles are supported: rows of several whole vectors. Booleans are stored instead of added,
// so they do not queue up.
inline bool aggregates(const Problem& problem, const Layout& layout) {
  const int values = values_per_access(problem, layout);
  return values * size_of(problem.dtype) == kAccessBytes && problem.dtype != DType::kBool &&
         layout.inner.size >= int64_t{kMinTileUnits} * values &&
         problem.entries >= kMinTileEntries && problem.bins < UINT32_MAX;
}

// Whether frequent bins may delay the other additions, in rows that tiles do not support.
inline bool may_queue_up(const Problem& problem, const Layout& layout) {
  const int64_t width = layout.inner.size;
  return width <= kMaxHotRow && layout.outer_size == 1 && problem.bins < UINT32_MAX &&
         problem.entries >= kHotSamples && problem.entries * width >= kMinHotValues;
}

inline AtomicPlan plan_atomic(const Problem& problem, const Layout& layout, const Device& device) {
  AtomicPlan plan;
  plan.values = values_per_access(problem, layout);
  plan.units = layout.inner.size / plan.values;
  // In a small problem each thread has one unit, so that no unit waits for another.
  const int64_t threads = int64_t{device.sms} * kAtomicThreads;
  plan.thread_units = std::clamp<int64_t>(
      plan.units * problem.entries * layout.outer_size / threads, 1, kAtomicUnroll);
  return plan;
}

inline TilesPlan plan_tiles(const Problem& problem, const Layout& layout, const Device& device) {
  const AtomicPlan atomic = plan_atomic(problem, layout, device);
  TilesPlan plan{atomic.values, atomic.units};
  // The tiles of a row are equally wide.
  plan.tile_units = ceil_div(plan.units, ceil_div<int64_t>(plan.units, kTileUnits));
  plan.tile_rows = atomic.thread_units * kAtomicThreads / plan.tile_units;
  const bool few_rows = atomic.thread_units == kAtomicUnroll && plan.tile_rows <= kFewRowsThreads;
  plan.tile_threads = few_rows ? kFewRowsThreads : kAtomicThreads;
  return plan;
}

inline HotPlan plan_hot(const Problem& problem, const Layout& layout) {
  const int values = values_per_access(problem, layout);
  const int64_t width = layout.inner.size;
  const auto bytes = static_cast<int64_t>(accumulator_bytes(problem.dtype));
  return {values, width / values,
          std::min<int64_t>(kMaxHotBins, kHotSharedBytes / (bytes * width * kHotCopies))};
}

}  // namespace gpuopt::index_add
