// The atomic path: values are added to memory atomically, each by itself, by tiles whose rows of
// one bin are summed first, or with frequent bins kept apart. What each supports, and its plan.
// Times are in us on an H200.
#pragma once

#include "index_add/index_add_problem.h"

namespace gpuopt::index_add {

constexpr int kAtomicThreads = 256;
constexpr int kAtomicUnroll = 4;

// ---------------------------------------------------------------- tiles
// Rows of a tile, from which on those of a bin are summed. (131072,64) += (2^20,64) f16: uniform,
// two 80.4, three 79.5, four 79.7; Zipf 1.1, 93, 104, 113.
constexpr uint32_t kAggregateFrom = 3;
// Units of a tile's row, at most. (65536,1024) += (16384,1024) f32: uniform, 8 66.4, 16 62.3, all
// 61.9; Zipf 1.1, 50, 48, 68.
constexpr int64_t kTileUnits = 16;
// Rows of one vector, (65536,4) += (2^21,4) f32: uniform, by tiles 51, with frequent bins apart 40.
// Of two, 35 and 33; Zipf 1.1, 40 and 54.
constexpr int64_t kMinTileUnits = 2;
constexpr int64_t kMinTileEntries = 1024;  // not swept
// A block whose full tile has no more rows than this has as many threads, and takes them in two
// batches: first sums are on their way sooner, and more blocks take turns. In one batch of 256 and
// in two of 128, (131072,64) += (2^20,64) f16 78.6 and 77.7, (65536,64) += (2^18,64) bf16 28.9 and
// 27.4; Zipf 1.1, 92 and 93, 36.2 and 37.0. Of more rows, (65536,16) += (2^20,16) f32 45.5 and
// 47.4.
constexpr int kFewRowsThreads = 128;

// ---------------------------------------------------------------- frequent bins apart
// Not swept: the numbers of frequent bins.
constexpr int kHotSamples = 1024;
constexpr int kHotFrom = 4;  // samples of a bin
constexpr int kHotSlotBits = 11;
constexpr int kHotSlots = 1 << kHotSlotBits;
constexpr int kHotCopies = 8;
constexpr int kHotSharedBytes = 24 << 10;
constexpr int kMaxHotBins = 256;
constexpr int kMaxHotRow = 64;
constexpr int kHotBlocksPerSm = 3;
constexpr int64_t kMinHotValues = 1 << 20;

// In these plans a row has `units`, which are accesses of a thread, of `values` each.
struct AtomicPlan {
  int values = 1;
  int64_t units = 1;
  int64_t thread_units = 1;  // that a thread has in flight
};

struct TilesPlan {
  int values = 1;
  int64_t units = 1;
  int64_t tile_rows = 0;
  int64_t tile_units = 0;  // of a row of the tile
  int tile_threads = 0;    // of a block
};

struct HotPlan {
  int values = 1;
  int64_t units = 1;
  int64_t hot_bins = 0;  // frequent bins that have their sums in shared memory, at most
};

// Of a tile's bins: at most half of the slots are taken.
inline int tile_slot_bits(int64_t rows) { return bits_for(rows) + 1; }

// What a block has to find the bins that rows of its tile share.
inline int64_t tile_shared_bytes(int64_t rows) {
  return (int64_t{1} << tile_slot_bits(rows)) * 8 + rows * 4 + rows / kAggregateFrom * 8 + rows * 6;
}

// Whether blocks sum rows of one bin before they add them: rows of several whole vectors. (Booleans
// are stored, so nothing queues up.)
inline bool aggregates(const Problem& problem, const Layout& layout) {
  const int values = values_per_access(problem, layout);
  return values * size_of(problem.dtype) == kAccessBytes && problem.dtype != DType::kBool &&
         layout.inner.size >= int64_t{kMinTileUnits} * values &&
         problem.entries >= kMinTileEntries && problem.bins < UINT32_MAX;
}

// Whether bins that many entries hit would hold the others up, in rows that no tiles take.
inline bool may_queue_up(const Problem& problem, const Layout& layout) {
  const int64_t width = layout.inner.size;
  return width <= kMaxHotRow && layout.outer_size == 1 && problem.bins < UINT32_MAX &&
         problem.entries >= kHotSamples && problem.entries * width >= kMinHotValues;
}

inline AtomicPlan plan_atomic(const Problem& problem, const Layout& layout, const Device& device) {
  AtomicPlan plan;
  plan.values = values_per_access(problem, layout);
  plan.units = layout.inner.size / plan.values;
  // A thread has one of few units, so that none waits for another's.
  const int64_t threads = int64_t{device.sms} * kAtomicThreads;
  plan.thread_units = std::clamp<int64_t>(
      plan.units * problem.entries * layout.outer_size / threads, 1, kAtomicUnroll);
  return plan;
}

inline TilesPlan plan_tiles(const Problem& problem, const Layout& layout, const Device& device) {
  const AtomicPlan atomic = plan_atomic(problem, layout, device);
  TilesPlan plan{atomic.values, atomic.units};
  // Tiles side by side, as wide as each other.
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
